"""`spyweb state rekey`: encrypt what is kept with another key, while no daemon has the database open."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import project_of
from spyweb.cli.output import Format
from spyweb.cli.state.options import StateOutput, Yes, agree
from spyweb.errors import ExitCode, Refused
from spyweb.store.crypto.keys import find_key
from spyweb.store.lock import hold_lock
from spyweb.store.sqlite.rotation import rotate_key

NONE = "none"


def rekey(
    context: typer.Context,
    key_file: Annotated[str, typer.Argument(metavar="KEY_FILE", help="The new key; `none` decrypts everything.")],
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """Encrypt what is kept with another key.

    Values, past versions and events: all of them, or none.  Only while no daemon runs.
    """
    project = project_of(context)
    project.need_files("`spyweb state rekey`")
    if project.settings.store.is_memory or not project.settings.store.path.exists():
        raise Refused(f"{project.root}: there is no database, so nothing is encrypted")
    new = None if key_file == NONE else find_key(key_file, project.root, os.environ)
    if not agree(f"Write everything anew in {project.settings.store.path}?", yes=yes):
        return ExitCode.FAILED
    with hold_lock(project.settings.daemon.data_dir, root=project.root, clock=project.clock):
        marker = project.offline.marker()
        is_purged = rotate_key(project.settings.store.path, old=project.offline.key(), new=new, marker=marker)
    setting = "" if new is None else key_file
    if not is_purged:
        output.note("parts of the older values are left in its file: the next start writes it anew, which needs room")
    output.tell(form, f'now set key_file = "{setting}" in [store] of config.toml', {"key_file": setting})
    return ExitCode.OK
