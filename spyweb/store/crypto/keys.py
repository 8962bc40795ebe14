"""Find the key that values are encrypted with: in a file or a systemd credential, never in the database."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path

from spyweb.errors import NoAccess, StoreError
from spyweb.files import open_regular
from spyweb.store.access import explain

KEY_BYTES = 32
CREDENTIAL = "credential:"  # and the name that LoadCredential= gives it
NOT_THE_OWNER = 0o077
# systemd lets the service's user read a credential by an access list, which shows as a right of the group; its folder
# is that service's alone.
NEITHER_OWNER_NOR_GROUP = 0o007


def find_key(setting: str, root: Path, environment: Mapping[str, str]) -> bytes:
    """Return the key that `[store] key_file` names.  Raises a StoreError or NoAccess with one clear line."""
    if not setting.startswith(CREDENTIAL):
        return read_key(root / setting)
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if not directory:
        raise StoreError(f"key_file = {setting!r}: systemd has given no credentials to this process")
    return read_key(Path(directory) / setting.removeprefix(CREDENTIAL), others=NEITHER_OWNER_NOR_GROUP)


def read_key(path: Path, *, others: int = NOT_THE_OWNER) -> bytes:
    """Read a key file to which `others`, given as bits of its mode, must have no rights."""
    try:
        with open_regular(path) as file:
            refuse_shared(path, os.fstat(file.fileno()).st_mode & others)
            return parse_key(path, file.read(4096))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(f"{path}: there is no key file") from error
    except OSError as error:
        raise explain(error, path) from error


def refuse_shared(path: Path, rights: int) -> None:
    if rights:
        raise NoAccess(f"{path}: others than its owner may use this key: `chmod 600 {path}`")


def parse_key(path: Path, content: bytes) -> bytes:
    """Return the key that a file contains as 32 bytes, hex or base64."""
    if len(content) == KEY_BYTES:
        return content
    text = content.strip()
    for read in (bytes.fromhex, base64.b64decode, base64.urlsafe_b64decode):
        try:
            key = read(text.decode("ascii"))
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    raise StoreError(f"{path}: a key is {KEY_BYTES} bytes, as they are or as hex or base64")
