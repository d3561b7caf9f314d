"""Flows: steps that wait for one another, over a typed state; agents, crews, teams and flows run inside them."""

from halter.flows.conditions import and_ as and_
from halter.flows.conditions import or_ as or_
from halter.flows.flow import Flow as Flow
from halter.flows.progress import FlowState as FlowState
from halter.flows.progress import Pending as Pending
from halter.flows.steps import Step as Step
from halter.flows.steps import listen as listen
from halter.flows.steps import router as router
from halter.flows.steps import start as start
