"""Signatures of sketches (Ed25519): a device takes a sketch only from the service whose key it has.

Key files hold a key as PEM; of a private one only the owner may read it. A public key may also be written out: 64
hexadecimal digits.
"""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from featveil.core import InputError, MissingExtraError
from featveil.core.files import check_folder, read_start, replacing
from featveil.gate.map_sketch import Signature, Sketch

_MOST_BYTES = 4096  # of a key file
_CONTEXT = b"featveil sketch 1\n"


def create_key(path: str | Path) -> Path:
    """Make a key pair: the private key at `path`, which nobody else may read, the public one beside it; its path.

    Raises InputError when either is there already.
    """
    path, ed25519, serialization = Path(path), *_cryptography()
    public = path.with_name(f"{path.name}.pub")
    check_folder(path.parent)
    for one in (path, public):
        if one.exists():
            raise InputError(f"{one} exists: sketches signed with it would be refused if it were replaced")
    key = ed25519.Ed25519PrivateKey.generate()
    pem, encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, encoding, serialization.NoEncryption())
    shown = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        with replacing(public) as temporary:
            temporary.write_bytes(shown)
    except OSError as error:
        path.unlink()
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        path.unlink()  # half a pair is of no use
        raise
    return public


def sign(sketch: Sketch, key: str | Path) -> Sketch:
    """The sketch with a signature by the private key in the file `key`; raises InputError when that is none."""
    private = _private_key(key)
    value = private.sign(_CONTEXT + sketch.digest.encode())
    return replace(sketch, signature=Signature(_digits(private.public_key()), value.hex()))


def check_key(key: str | Path) -> str:
    """The public key of the private one in the file `key`; raises InputError when that is none."""
    return _digits(_private_key(key).public_key())


def check_signer(sketch: Sketch, signer: str | Path) -> None:
    """Raise InputError unless the sketch is signed by `signer`: a public key in hexadecimal digits, or its file."""
    expected, ed25519 = public_key(signer), _cryptography()[0]
    signature = sketch.signature
    if signature is None:
        raise InputError("the sketch is not signed, and a signer is required: get it from the service itself")
    if signature.key != expected:
        raise InputError(f"the sketch is signed with key {signature.key[:16]}, not with {expected[:16]}: do not use it")
    from cryptography.exceptions import InvalidSignature

    key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(expected))
    try:
        key.verify(bytes.fromhex(signature.value), _CONTEXT + sketch.digest.encode())
    except InvalidSignature as error:
        raise InputError("the signature of the sketch is wrong: it was altered, do not use it") from error


def public_key(given: str | Path) -> str:
    """A public key as 64 hexadecimal digits, written out or from its file; raises InputError for anything else."""
    if not isinstance(given, str | Path):
        raise InputError(f"a signer is a public key, or the path of its file, not {type(given).__name__}")
    ed25519, serialization = _cryptography()
    if isinstance(given, str) and re.fullmatch(r"[0-9a-fA-F]{64}", given):
        return given.lower()
    key = _read_key(Path(given), serialization.load_pem_public_key)
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError(f"{given!s:.80} holds no Ed25519 public key")
    return _digits(key)


def _private_key(path: str | Path) -> Any:
    ed25519, serialization = _cryptography()
    key = _read_key(Path(path), lambda content: serialization.load_pem_private_key(content, None))
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError(f"{path} holds no Ed25519 private key: featveil sketch key makes one")
    return key


def _digits(key: Any) -> str:
    """A public key, written out."""
    serialization = _cryptography()[1]
    digits: str = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()
    return digits


def _read_key(path: Path, load: Any) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return load(read_start(path, _MOST_BYTES))
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{path} holds no usable key here: sign with the private one, pin the public one (.pub); featveil sketch"
            " key makes both"
        ) from error


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtraError("cryptography", "signing") from error
    return ed25519, serialization
