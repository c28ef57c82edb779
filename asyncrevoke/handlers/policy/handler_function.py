"""What users write."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

HandlerFunction: TypeAlias = Callable[..., Awaitable[object]]
