"""Crews: members with a role, a goal and a backstory work through tasks, one after another, or through a manager."""

from halter.crews.crew import Crew as Crew
from halter.crews.member import Member as Member
from halter.crews.state import CrewState as CrewState
from halter.crews.task import Task as Task
