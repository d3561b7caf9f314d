"""The machines and the runtime: no HTTP, no Redis, no SQL in here."""
