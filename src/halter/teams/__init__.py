"""Agents that work on one conversation: in turns, as somebody chooses, by handing over, along a graph."""

from halter.teams.graph import Edge as Edge
from halter.teams.graph import Graph as Graph
from halter.teams.round_robin import RoundRobin as RoundRobin
from halter.teams.selector import Selector as Selector
from halter.teams.state import TeamState as TeamState
from halter.teams.state import Turn as Turn
from halter.teams.swarm import Swarm as Swarm
from halter.teams.team import Team as Team
