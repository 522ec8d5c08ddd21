"""Tests of exceptions in the handling of responses: the other commands get theirs."""

import pytest

from weft.driver.verbs.mr import MR
from weft.driver.verbs.pd import PD
from weft.hdl.contract import abi
from weft.tb.sim.pair.functional_pair import make_pair


@pytest.fixture
def context():
    return make_pair(seed=6).contexts[0]


def raising(_response):
    raise ZeroDivisionError("a fault of the driver")


def submit(context, *handlers):
    context.commands.submit(abi.CommandOpcode.SET_NETWORK, *handlers, mac=context.mac, ip=context.ip)


def test_an_exception_of_one_command_is_not_that_of_another(context):
    problems = []
    submit(context, raising, problems.append)
    MR(PD(context), 4096, 1).close()
    assert [type(problem) for problem in problems] == [ZeroDivisionError]
    assert not context.commands.waiting


def test_an_exception_without_an_owner_is_raised_after_all_responses(context):
    answers = []
    for handler in (answers.append, raising, answers.append):
        submit(context, handler)
    with pytest.raises(ZeroDivisionError):
        context.run_until(lambda: len(answers) == 2, 10**6)
    assert len(answers) == 2 and not context.commands.waiting
