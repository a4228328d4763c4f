"""Addresses of network streams: their passwords go to libav and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from hermes.errors import UsageError
from hermes.sources.opening import printable

SCHEMES = ("rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "tcp", "udp", "hls")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET_PARAMETER = re.compile(r"(?i)([?&][^=&#]*(?:pass|pwd|token|key|secret|auth|sig)[^=&#]*=)([^&#]*)")
_HIDDEN = "***"


def is_address(spec: str) -> bool:
    """Whether it begins like `rtsp://`."""
    return _SCHEME.match(spec) is not None


def hide_password(spec: str) -> str:
    """The same text, with `***` for the password where it is an address; it may be shown and kept."""
    return Address.parse(spec).shown if is_address(spec) else spec


@dataclass(frozen=True)
class Address:
    """An address, and the same without what is secret in it.

    Attributes:
        scheme: in small letters.
        shown: with `***` for the password, and for the values of parameters that look like one.
        url: what libav is given, user and password percent-encoded.
        secrets: what must not be shown, in each form in which it may turn up.
        is_hidden: whether there was a password, of which only `***` is left.
        lacks_parameter: whether that is so of the value of a parameter.
    """

    scheme: str
    shown: str
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    is_hidden: bool = False
    lacks_parameter: bool = False

    @classmethod
    def parse(cls, spec: str, password: str | None = None) -> Address:
        """Take an address apart at the last `@` before its path, since passwords may hold one too.

        Args:
            spec: as the user wrote it; a `%` in its password is the start of a percent-encoded character.
            password: for the user in it, where none stands there or it was hidden; taken as it is.
        """
        begin = _SCHEME.match(spec)
        assert begin is not None  # `is_address` has been asked
        user, written, rest = _divided(spec[begin.end() :])
        decoded = password if written in (None, _HIDDEN) else unquote(written)
        scheme = begin[1].lower()
        shown_user, url_user = "", ""
        if user is not None:
            shown_user = f"{user}@" if written is None and decoded is None else f"{user}:{_HIDDEN}@"
            url_user = quote(unquote(user), safe="") + ("" if decoded is None else f":{quote(decoded, safe='')}") + "@"
        parameters = [value for _, value in _SECRET_PARAMETER.findall(rest)]
        found = {written, decoded, quote(decoded or "", safe=""), *parameters}
        secrets = sorted((secret for secret in found if secret and secret != _HIDDEN), key=len, reverse=True)
        shown = f"{scheme}://{shown_user}{_SECRET_PARAMETER.sub(_hidden, rest)}"
        # "hls" is no protocol of libav's: it is a playlist that is fetched by HTTP.
        protocol = "http" if scheme == "hls" else scheme
        return cls(
            scheme,
            printable(shown),
            f"{protocol}://{url_user}{rest}",
            tuple(secrets),
            written == _HIDDEN and password is None,
            _HIDDEN in parameters,
        )

    def check(self) -> None:
        """Raise `UsageError` for a kind of address that is not for videos, or one whose password was hidden."""
        if self.scheme not in SCHEMES:
            raise UsageError(
                f"{self.scheme}:// is not an address of a video stream", f"those begin with {', '.join(SCHEMES[:6])}"
            )
        if self.is_hidden:
            raise UsageError(
                f"{self.shown}: the password is not known, since none is ever stored",
                "set HERMES_RTSP_PASSWORD, or use --password-file FILE",
            )
        if self.lacks_parameter:
            raise UsageError(f"{self.shown}: *** stands for what is secret and never stored", "give the whole address")

    def scrub(self, text: str) -> str:
        """A message without the secrets of this address."""
        text = text.replace(self.url, self.shown)
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def _hidden(parameter: re.Match[str]) -> str:
    return parameter[1] + _HIDDEN


def _divided(rest: str) -> tuple[str | None, str | None, str]:
    """User, password, and what follows the scheme without them; None for what is not there."""
    host, slash, path = rest.partition("/")
    if "@" not in host and "@" in path and ":" in host and not host.rpartition(":")[2].isdecimal() and host[0] != "[":
        host, slash, path = rest, "", ""  # no port is like this: it is the start of a password with a slash in it
    login, at, host = host.rpartition("@")
    if not at:
        return None, None, rest
    user, colon, password = login.partition(":")
    return user, password if colon else None, f"{host}{slash}{path}"
