"""Signatures: the right key and the right sketch, and nothing else."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="signatures: pip install 'featveil[signing]'")

from featveil.core import InputError, MissingExtraError
from featveil.gate import Signature, Sketch, load_sketch, save_sketch, signing
from featveil.gate.signing import check_key, check_signer, create_key, public_key, sign
from sketches import builtin_sketch, sketch_of


@pytest.fixture
def sketch() -> Sketch:
    return builtin_sketch(8)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    create_key(tmp_path / "service.key")
    return tmp_path / "service.key"


def test_a_signature_is_of_this_sketch_and_key(sketch: Sketch, key: Path, tmp_path: Path) -> None:
    signed = sign(sketch, key)
    public = tmp_path / "service.key.pub"
    digits = public_key(str(public))
    assert signed.digest == sketch.digest and check_key(key) == digits
    for signer in (public, str(public), digits, digits.upper()):
        check_signer(signed, signer)
    save_sketch(signed, tmp_path / "a.sketch")
    check_signer(load_sketch(tmp_path / "a.sketch"), digits)


def test_what_is_not_signed_so_is_refused(sketch: Sketch, key: Path, tmp_path: Path) -> None:
    signed, digits = sign(sketch, key), check_key(key)
    create_key(tmp_path / "other.key")
    other, stranger = sign(sketch, tmp_path / "other.key"), sketch_of(np.eye(8, dtype=np.float32))
    assert signed.signature is not None and other.signature is not None
    with pytest.raises(InputError, match="not signed"):
        check_signer(sketch, digits)
    with pytest.raises(InputError, match="not with"):
        check_signer(other, digits)
    wrong = [
        replace(stranger, signature=signed.signature),  # of another sketch
        replace(sketch, source="another place", signature=signed.signature),
        replace(sketch, calibration=None, signature=signed.signature),
        replace(sketch, signature=Signature(digits, other.signature.value)),  # another key's
        replace(sketch, signature=Signature(digits, "0" * 128)),
    ]
    for one in wrong:
        with pytest.raises(InputError, match="signature of the sketch is wrong"):
            check_signer(one, digits)


def test_only_the_owner_reads_a_private_key(key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"PRIVATE" not in key.with_name("service.key.pub").read_bytes()


def test_a_key_is_never_replaced(key: Path, tmp_path: Path) -> None:
    before = key.read_bytes()
    with pytest.raises(InputError, match="exists"):
        create_key(key)
    key.rename(tmp_path / "moved.key")
    with pytest.raises(InputError, match=r"service\.key\.pub exists"):
        create_key(key)
    assert not key.exists() and (tmp_path / "moved.key").read_bytes() == before


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [1, 2])
def test_no_half_of_a_pair_is_left(
    failure: BaseException, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, or Ctrl-C comes, when the first or the second key is written."""
    calls, flush = 0, os.fsync

    def stop(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise failure
        flush(handle)

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(InputError if isinstance(failure, OSError) else KeyboardInterrupt):
        create_key(tmp_path / "service.key")
    assert calls == step and list(tmp_path.iterdir()) == []


def test_files_that_are_no_keys(sketch: Sketch, key: Path, tmp_path: Path) -> None:
    public = tmp_path / "service.key.pub"
    (tmp_path / "noise").write_bytes(b"\0\xff" * 9000)
    (tmp_path / "long").write_bytes(public.read_bytes() + b"\n" * 9000 + b"x")
    for wrong in (public, tmp_path / "noise", tmp_path / "none", tmp_path):
        with pytest.raises(InputError):
            sign(sketch, wrong)
    for signer in (key, tmp_path / "noise", tmp_path / "none", tmp_path, "0" * 63, "0" * 65, "g" * 64):
        with pytest.raises(InputError):
            public_key(str(signer))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_no_key(sketch: Sketch, tmp_path: Path) -> None:
    """Nobody writes to it: opening it would take for ever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="no regular file"):
        public_key(str(tmp_path / "pipe"))
    with pytest.raises(InputError, match="no regular file"):
        sign(sketch, tmp_path / "pipe")


@pytest.mark.parametrize("signer", [None, 5, b"0" * 64])
def test_signers_of_another_type(sketch: Sketch, signer: Any) -> None:
    with pytest.raises(InputError, match="a signer is"):
        check_signer(sketch, signer)


def test_keys_of_another_kind(sketch: Sketch, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed448

    key = ed448.Ed448PrivateKey.generate()
    pem = serialization.Encoding.PEM
    none = serialization.NoEncryption()
    private, public = tmp_path / "a.key", tmp_path / "a.key.pub"
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(InputError, match="no Ed25519 private key"):
        sign(sketch, private)
    with pytest.raises(InputError, match="no Ed25519 public key"):
        public_key(str(public))
    secret = serialization.BestAvailableEncryption(b"secret")
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, secret))
    with pytest.raises(InputError, match="no usable key"):
        sign(sketch, private)


def test_without_the_extra(sketch: Sketch, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtraError("cryptography", "signing")

    monkeypatch.setattr(signing, "_cryptography", missing)
    with pytest.raises(MissingExtraError, match="signing"):
        check_signer(sketch, "0" * 64)
