"""A real Kafka with users, which the brokers of `test_brokers.py` do not have (`make kafka`; needs Java and Maven)."""

import subprocess
from collections.abc import Iterator

import pytest

from tenants.models import Tenant
from tests.fixtures import Api, assert_error, wait_until
from tests.free_ports import free_port
from tests.pages import ROOT
from webhooks.delivery import dispatcher
from webhooks.destinations import kafka
from webhooks.tests.delivering import publish_one
from webhooks.tests.destinations import _answers
from webhooks.tests.test_destinations import last, make

pytestmark = pytest.mark.django_db(transaction=True)

JAVA = ["java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{ROOT}/.venv/kafka/*"]
LOGIN = "org.apache.kafka.common.security"
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CONTROLLER://127.0.0.1:{controller},INNER://127.0.0.1:{inner},USERS://127.0.0.1:{users}
advertised.listeners=INNER://127.0.0.1:{inner},USERS://127.0.0.1:{users}
controller.listener.names=CONTROLLER
inter.broker.listener.name=INNER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INNER:PLAINTEXT,USERS:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.users.plain.sasl.jaas.config={login}.plain.PlainLoginModule required user_asha="right";
listener.name.users.scram-sha-256.sasl.jaas.config={login}.scram.ScramLoginModule required;
listener.name.users.scram-sha-512.sasl.jaas.config={login}.scram.ScramLoginModule required;
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
"""
USERS = [
    part
    for each in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for part in ("--add-scram", f"{each}=[name=asha,password=right]")
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with the user asha. Yields its address."""
    where, users = tmp_path_factory.mktemp("kafka"), free_port()
    file = where / "properties"
    file.write_text(
        PROPERTIES.format(
            controller=free_port(), inner=free_port(), users=users, login=LOGIN, logs=where / "data"
        )
    )
    subprocess.run(
        [*JAVA, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(file), *USERS],
        check=True,
    )
    with (where / "log").open("w") as log:
        process = subprocess.Popen([*JAVA, "kafka.Kafka", str(file)], stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(users) or process.poll() is not None, "Kafka", seconds=60)
        assert process.poll() is None, (where / "log").read_text()
        yield f"127.0.0.1:{users}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("mechanism", kafka.MECHANISMS)
def test_users_write_to_a_topic_and_others_are_refused(
    api: Api, tenant: Tenant, server: str, mechanism: str
) -> None:
    given = {
        "bootstrap_servers": server,
        "topic": f"of-{mechanism}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "asha",
        "sasl_password": "right",
    }
    endpoint = make(api, {"kind": "kafka", "destination": given})
    publish_one(tenant)
    dispatcher.run()
    assert (last(endpoint).status, last(endpoint).last_error) == ("delivered", None)
    refused = api.post("/v1/webhooks", {"kind": "kafka", "destination": {**given, "sasl_password": "wrong"}})
    details = assert_error(refused, 422, "webhook_verify_failed")["details"]
    assert (details["error"], "uthentication" in details["body_excerpt"]) == ("refused", True)
