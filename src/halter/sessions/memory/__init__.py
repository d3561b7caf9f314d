"""Sessions in the memory of this process."""

from halter.sessions.memory.store import MemoryStore as MemoryStore
