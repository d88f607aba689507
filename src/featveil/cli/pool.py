"""featveil pool: real descriptors of the device's own photographs, for hardened lifting to hide others among."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, progress
from featveil.cli.console import show as show_result
from featveil.cli.options import command
from featveil.pipelines.fill_pool import PoolAddition, PoolRequest, add_to_pool, create_pool

if TYPE_CHECKING:
    from featveil.stores.pool import Holdings

app = typer.Typer(no_args_is_help=True, help="Keep descriptors that only this device has, to hide others among.")


@app.command()
@command
def create(request: PoolRequest, json: Json = False) -> None:
    """Make a pool of photographs that are never released themselves. Each of their descriptors is used once.

    Example: featveil pool create device.pool camera-roll/ --kind rootsift
    """
    with progress("photographs") as report:
        holdings = create_pool(request, report)
    _show(request.pool, holdings, json)


@app.command()
@command
def add(request: PoolAddition, json: Json = False) -> None:
    """Add photographs to a pool; those that it holds, or that were released with it, are left out.

    Example: featveil pool add device.pool holidays/
    """
    with progress("photographs") as report:
        holdings = add_to_pool(request, report)
    _show(request.pool, holdings, json)


@app.command()
def info(
    pool: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file: a secret of the device.")],
    json: Json = False,
) -> None:
    """Show what a pool holds, and how much of it is left.

    Example: featveil pool info device.pool
    """
    from featveil.stores.pool import Pool

    _show(pool, Pool(pool).holdings(), json)


def _show(pool: Path, holdings: "Holdings", json: bool) -> None:
    plural = "" if holdings.photographs == 1 else "s"
    text = (
        f"pool        {pool}\n"
        f"holds       {holdings.entries:,} {holdings.kind} descriptors of {holdings.photographs:,} photograph{plural}\n"
        f"unused      {holdings.free:,}\n"
        "Whoever has this file can undo every release made with it: it stays on the device."
    )
    show_result({"pool": str(pool), **asdict(holdings)}, json, text)
