"""Exceptions of the package."""


class SiderealError(Exception):
    """Base of all exceptions of the package."""


class ParameterError(SiderealError, ValueError):
    """An argument or the shape of an array violates a rule, which the message gives."""


class FormatError(SiderealError, ValueError):
    """A file violates its format; the message names the field, what was found and what was expected."""


class FileError(SiderealError, OSError):
    """The operating system failed a file operation; `errno` and `filename` say which."""


class UnavailableError(SiderealError, RuntimeError):
    """This machine lacks a device, a library or another resource."""


class DeviceError(SiderealError, RuntimeError):
    """The driver of a GPU failed."""
