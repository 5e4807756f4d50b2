import pytest

from deploy.demo.slack_stub import SlackStub
from engine.notify.slack import Slack


@pytest.fixture
def stub():
    with SlackStub(token="xoxb-right", channels=["ray-alerts"]) as running:
        yield running


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("xoxb-right\n")
    return path


@pytest.fixture
def slack(stub, token_file):
    return Slack(channel="#ray-alerts", token_file=str(token_file), api_url=stub.url)
