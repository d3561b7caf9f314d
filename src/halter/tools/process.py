"""Programs as tools: `shell` runs command lines, `program` one program without a shell.

**The plain shell is no sandbox**: a command may do whatever this process may. What Halter holds is its end: at the end
of a call, at its time-out and at a stop nothing that it has started is left (TERM, then KILL), however it has hidden.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from halter import checked
from halter.core.tool_context import ToolContext
from halter.errors import ConfigurationError
from halter.risk import Risk
from halter.tools.approval import Approval
from halter.tools.function import FunctionTool
from halter.tools.jobs import Jobs, default_jobs, first_words
from halter.tools.running import Limits, run
from halter.tools.sandbox import SandboxOption
from halter.tools.surroundings import Surroundings

# One command with plain arguments. Anything else asks, also where it would do no harm: ; & | $ ` < > ( ) { } \ ! # and
# line breaks may hold, hide or become a second command.
_PLAIN = re.compile(r"""[\w ./:=@%+,^~*?\[\]"'-]+""")
_COMMAND = "The command line."
_ARGUMENTS = "Its arguments, each by itself; nothing is quoted or expanded."
_TIMEOUT = "Seconds that it may take, if less than it may anyway."
_BACKGROUND = "Leave it running in the background: returns its job id at once."
_RETURNS = "returns what it writes to stdout and stderr, and its exit code if that is not 0"
_MARGIN = 1_000  # characters beside the output: what is left out, how it ended


def shell(
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 120.0,
    max_output: int = 30_000,
    approval: Approval | None = None,
    approval_timeout: float | None = 300.0,
    background: bool | Jobs = False,
    sandbox: SandboxOption = None,
    shell: str | None = None,
    name: str = "shell",
    term_grace: float = 1.0,
) -> FunctionTool[..., Any]:
    """A tool that runs command lines. **It is no sandbox**: a command may do whatever this process may.

    `cwd`: the directory; `None`: where this process is. `env`: variables, beyond the short list that is passed on (see
    `surroundings.PASSED`). `timeout`: seconds for a command; the model may ask for less; `None`: no limit.
    `max_output`: characters that the model gets, head and tail. `approval`: as for `tool`; patterns of commands that
    run unasked are compared with single plain commands alone: with any of ``; & | $ ` < > ( ) { } \\ ! #`` or a line
    break in it, **a command always asks**. `approval_timeout`: seconds; then it is a no. `background`: the model may
    leave a program running, in these `Jobs`, or with `True` in the loop's; give it `job_tools()` as well. `sandbox`:
    `"bwrap"`, or a `Sandbox(…)`. `shell`: bash, or sh where there is none. `term_grace`: seconds between TERM and
    KILL. Raises `ConfigurationError`.

    What a call has started is gone when it ends: its whole tree, also what used `nohup`, `setsid` or a double fork.
    """
    where = Surroundings.of(cwd, env, sandbox)
    limits = Limits.of(timeout, max_output, term_grace)
    program = _found(shell or ("bash" if shutil.which("bash") else "sh"))
    jobs_of = _jobs(background)

    async def run_command(
        ctx: ToolContext,
        command: Annotated[str, _COMMAND],
        timeout: Annotated[float | None, _TIMEOUT] = None,
    ) -> str:
        return await run([program, "-c", command], command, where, limits, limits.time_for(timeout), ctx)

    async def run_or_leave_running(
        ctx: ToolContext,
        command: Annotated[str, _COMMAND],
        timeout: Annotated[float | None, _TIMEOUT] = None,
        background: Annotated[bool, _BACKGROUND] = False,
    ) -> str:
        if not background or jobs_of is None:
            return await run_command(ctx, command, timeout)
        job = await jobs_of().start(
            [program, "-c", command], command, where, max_output=max_output, term_grace=limits.term_grace
        )
        return await first_words(job)

    def does(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        plain = _plain_command(given)
        left_running = {"background": True} if given.get("background") else {}
        return None if plain is None else {"command": plain, "directory": where.directory(), **left_running}

    return FunctionTool(
        run_command if jobs_of is None else run_or_leave_running,
        name=name,
        description=f"Runs a command line; {_RETURNS}.{_at_most(limits)}",
        risk=("destroys", "network"),
        does=does,
        approval=approval,
        approval_timeout=approval_timeout,
        approval_prompt=_command_asked,
        approval_subject=_plain_command,
        max_result=max_output + _MARGIN,
    )


def program(
    command: str | Path | Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = 120.0,
    max_output: int = 30_000,
    risk: Risk | Iterable[Risk] = ("destroys", "network"),
    approval: Approval | None = None,
    approval_timeout: float | None = 300.0,
    sandbox: SandboxOption = None,
    name: str | None = None,
    description: str | None = None,
    term_grace: float = 1.0,
) -> FunctionTool[..., Any]:
    """A tool that runs one program, without a shell: the model gives a list of arguments.

    `command`: the program's name or path, or a list of it and its first arguments, as `["git", "-C", "/repo"]`.
    `approval`: as for `tool`; patterns are compared with the arguments as a shell would want them written: `"status*"`,
    `"log --oneline *"`. `risk`: what harm this program can do, as for `tool`.
    Many programs run others if they are told to: think of `git -c`, `find -exec`, `tar`. All else as for `shell`.
    Raises `ConfigurationError`, also if there is no such program.
    """
    argv = [os.fspath(command)] if isinstance(command, str | Path) else list(command)
    if not argv or not all(isinstance(part, str) for part in argv):
        raise ConfigurationError(f"command must be a program, or a list of it and its first arguments: {command!r}")
    argv[0] = _found(argv[0])
    where = Surroundings.of(cwd, env, sandbox)
    limits = Limits.of(timeout, max_output, term_grace)
    called = Path(argv[0]).name

    async def run_program(
        ctx: ToolContext,
        arguments: Annotated[list[str], _ARGUMENTS],
        timeout: Annotated[float | None, _TIMEOUT] = None,
    ) -> str:
        label = shlex.join([called, *argv[1:], *arguments])
        return await run([*argv, *arguments], label, where, limits, limits.time_for(timeout), ctx)

    def asked(arguments: list[str], **_: Any) -> str:
        return f"Run {shlex.join([called, *argv[1:], *arguments])}"

    said = f"Runs {shlex.join([called, *argv[1:]])} with these arguments; {_RETURNS}.{_at_most(limits)}"

    def does(given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"program": argv, "arguments": given["arguments"], "directory": where.directory()}

    return FunctionTool(
        run_program,
        name=name or re.sub(r"[^a-zA-Z0-9_-]", "_", called),
        description=description or said,
        risk=risk,
        does=does,
        approval=approval,
        approval_timeout=approval_timeout,
        approval_prompt=asked,
        approval_subject=lambda given: shlex.join(given["arguments"]),
        max_result=max_output + _MARGIN,
    )


def _found(name: str) -> str:
    """The program's path. Raises `ConfigurationError`."""
    found = shutil.which(os.path.expanduser(name))
    if found is None:
        raise ConfigurationError(f"there is no program {name!r} to run: not as a path, and not on the PATH")
    return os.path.abspath(found)


def _jobs(background: bool | Jobs) -> Callable[[], Jobs] | None:
    if isinstance(background, Jobs):
        return lambda: background
    return default_jobs if checked.one_of("background", background, (True, False)) else None


def _at_most(limits: Limits) -> str:
    return "" if limits.timeout is None else f" It may take {limits.timeout:g} seconds."


def _command_asked(command: str, background: bool = False, **_: Any) -> str:
    return f"Run in the shell{', in the background' if background else ''}: {command}"


def _plain_command(given: Mapping[str, Any]) -> str | None:
    """What patterns are compared with: a single plain command; `None`, which asks, for anything else."""
    command = given["command"]
    return command if _PLAIN.fullmatch(command) else None
