"""Where a peer lives: an environment of its own under `.cache/bench/`, made when it is missing.

    command(peer)   what starts its child; the orders follow as one argument

A Python peer gets a virtual environment, a Node peer a folder with `node_modules` beside which
its child is copied, because Node looks for packages from where the programme lies.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from book import Peer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tools.reference_env import (  # noqa: E402 - found from the root only
    NotInstallableError,
    make_once,
    python_with,
    run_installer,
)

__all__ = ["NotInstallableError", "command", "folder_of", "python_of"]


def command(peer: Peer) -> list[str]:
    if not peer.node:
        return [str(python_of(peer)), str(HERE / peer.child)]
    node = _found("node")
    child = folder_of(peer) / peer.child
    shutil.copyfile(HERE / peer.child, child)
    return [node, str(child)]


def python_of(peer: Peer) -> Path:
    """The interpreter that has the packages of a Python peer."""
    assert not peer.node
    return python_with(f"bench/{peer.name}", peer.packages)


def folder_of(peer: Peer) -> Path:
    """The folder whose `node_modules` has the packages of a Node peer."""
    assert peer.node
    npm = _found("npm")

    def make(home: Path) -> None:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "package.json").write_text('{"private": true}\n')
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        install = [npm, "install", "--prefix", str(home), *quiet, *peer.packages]
        run_installer(install, f"{peer.packages[0]} from npm")

    return make_once(f"bench/{peer.name}", "\n".join(["npm", *peer.packages]), make)


def _found(programme: str) -> str:
    path = shutil.which(programme)
    if path is None:
        raise NotInstallableError(f"there is no `{programme}` on PATH")
    return path
