"""Messages of connection management against the standard: as tshark decodes them, and byte by byte."""

import random

import pytest

from weft.driver.connection import messages
from weft.driver.connection.messages import (
    HEADER,
    LAYOUTS,
    MAD,
    Attribute,
    build,
    header,
    parse,
    parse_header,
    private_bytes,
    service_id,
)
from weft.hdl.contract import wire
from weft.tb.sim.link.pcap import PcapWriter
from weft.tb.test import tshark

CM = "infiniband.cm"
# Fields of each message, with tshark's names. tshark does not decode MRA, and decodes flow label and packet rate from
# the wrong bytes.
NAMES = {
    Attribute.REQ: {
        "local_id": "req", "ca_guid": "req.localcaguid", "qkey": "req.localqkey",
        "qpn": "req.localqpn", "responder_resources": "req.responderres", "initiator_depth": "req.initdepth",
        "remote_timeout": "req.remoteresptout", "transport": "req.transpsvctype", "flow_control": "req.e2eflowctrl",
        "psn": "req.startpsn", "local_timeout": "req.localresptout", "retry_count": "req.retrcount",
        "pkey": "req.pkey", "mtu": "req.pppmtu", "rdc_exists": "req.rdcexist", "rnr_retry_count": "req.rnrretrcount",
        "max_cm_retries": "req.maxcmretr", "srq": "req.srq", "extended_transport": "req.ext_transport",
        "traffic_class": "req.prim_tfcclass", "hop_limit": "req.prim_hoplim", "sl": "req.prim_sl",
        "subnet_local": "req.prim_subnetlocal", "ack_timeout": "req.prim_localacktout"},
    Attribute.REP: {
        "local_id": "rep", "remote_id": "rep.remotecommid", "qkey": "rep.localqkey", "qpn": "rep.localqpn",
        "psn": "rep.startpsn", "responder_resources": "rep.respres", "initiator_depth": "rep.initdepth",
        "ack_delay": "rep.tgtackdelay", "failover": "rep.failoveracc", "flow_control": "rep.e2eflowctrl",
        "rnr_retry_count": "rep.rnrretrcount", "srq": "rep.srq", "ca_guid": "rep.localcaguid"},
    Attribute.RTU: {"local_id": "rtu.localcommid", "remote_id": "rtu.remotecommid"},
    Attribute.REJ: {"local_id": "rej.localcommid", "remote_id": "rej.remotecommid", "answered": "rej.msgrej",
                    "info_length": "rej.rejinfolen", "reason": "rej.reason"},
    Attribute.DREQ: {"local_id": "dreq.localcommid", "remote_id": "dreq.remotecommid",
                     "remote_qpn": "req.remoteqpneecn"},
    Attribute.DREP: {"local_id": "drsp.localcommid", "remote_id": "drsp.remotecommid"},
}


def random_fields(kind, rng):
    return {field.name: rng.getrandbits(field.width) for field in LAYOUTS[kind].fields
            if not field.name.startswith("_")}


def frame_of(data):
    return wire.build_frame(
        opcode=wire.UD_SEND_ONLY, dst_mac=2, src_mac=1, src_ip=0x0A00_0001, dst_ip=0x0A00_0002, sport=0xC001,
        dest_qp=wire.GSI_QPN, psn=0, extensions=wire.DETH.pack(qkey=wire.GSI_QKEY, src_qp=wire.GSI_QPN), payload=data)


@pytest.fixture
def read(tmp_path):
    """Return a function that decodes fields of frames with tshark."""
    tshark.need_tshark()

    def read_frames(frames, names):
        with PcapWriter(tmp_path / "frames.pcap") as capture:
            for n, frame in enumerate(frames):
                capture.write(1000 * n, frame)
        return tshark.fields(tmp_path / "frames.pcap", names)
    return read_frames


def test_tshark_decodes_built_messages(read, bench_seed):
    rng, frames, wanted = random.Random(bench_seed), [], []
    for kind, names in NAMES.items():
        for _ in range(4):
            fields = random_fields(kind, rng)
            frames.append(frame_of(build(kind, rng.getrandbits(64), **fields)))
            wanted.append({f"{CM}.{there}": fields[here] for here, there in names.items()})
    columns = sorted({name for values in wanted for name in values})
    for row, values in zip(read(frames, columns), wanted, strict=True):
        assert {name: tshark.number(row[name]) for name in columns if row[name]} == values
        assert not row[tshark.MALFORMED]


def test_tshark_decodes_addresses(read):
    data = header(0x0A00_0001, 4711, 0x0A00_0002) + b"hello"
    fields = random_fields(Attribute.REQ, random.Random(1)) | {
        "service_id": service_id(7471), "local_gid": 0xFFFF_0A00_0001, "remote_gid": 0xFFFF_0A00_0002}
    names = ["serviceid.protocol", "serviceid.dport", "prim_localgid_ipv4", "prim_remotegid_ipv4", "ip_cm.majv",
             "ip_cm.ipv", "ip_cm.sport", "ip_cm.sip4", "ip_cm.dip4"]
    row, = read([frame_of(build(Attribute.REQ, 1, data, **fields))], [f"{CM}.req.{name}" for name in names])
    assert [row[f"{CM}.req.{name}"] for name in names] == [
        "0x06", "0x1d2f", "10.0.0.1", "10.0.0.2", "0x00", "0x04", "0x1267", "10.0.0.1", "10.0.0.2"]


def test_an_mra_byte_by_byte():
    data = build(Attribute.MRA, 0x0102030405060708, b"late", local_id=0x11121314, remote_id=0x21222324, answered=1,
                 timeout=19)
    assert data.hex().startswith(
        "01070203" "00000000" "0102030405060708" "00110000" "00000000" "11121314" "21222324" "40" "98"
        + b"late".hex() + "00")


def test_the_word_of_flow_label_and_packet_rate():
    data = build(Attribute.REQ, 0, flow_label=0x12345, packet_rate=0x2A)
    assert data[MAD.size_bytes + 88:][:4].hex() == "1234502a"


def test_a_resolution_byte_by_byte():
    asked = build(Attribute.SIDR_REQ, 1, b"private", request_id=0x11121314, pkey=0xFFFF, service_id=0x01111C06)
    assert asked[MAD.size_bytes:].hex().startswith("11121314" "ffff" "0000" "0000000001111c06" + b"private".hex())
    answer = build(Attribute.SIDR_REP, 1, b"private", request_id=0x11121314, status=2, qpn=0x212223, qkey=0x31323334,
                   service_id=0x01111C06)
    assert answer[MAD.size_bytes:].hex().startswith(
        "11121314" "02" "00" "0000" "212223" "00" "0000000001111c06" "31323334" + "00" * 72 + b"private".hex())


@pytest.mark.parametrize("kind", list(Attribute), ids=lambda kind: kind.name)
def test_built_messages_are_parsed_back(kind, bench_seed):
    rng = random.Random(bench_seed)
    fields, tid = random_fields(kind, rng), rng.getrandbits(64)
    private = rng.randbytes(rng.randint(0, private_bytes(kind)))
    message = parse(build(kind, tid, private, **fields))
    assert message.kind is kind and message.tid == tid and {name: vars(message)[name] for name in fields} == fields
    assert message.private_data == private.ljust(private_bytes(kind), b"\0")
    with pytest.raises(ValueError, match="private data"):
        build(kind, tid, bytes(private_bytes(kind) + 1))


def test_private_data_lengths_follow_the_standard():
    assert {kind.name: private_bytes(kind) for kind in Attribute} == {
        "REQ": 92, "MRA": 222, "REJ": 148, "REP": 196, "RTU": 224, "DREQ": 220, "DREP": 224,
        "SIDR_REQ": 216, "SIDR_REP": 136}
    assert 92 - HEADER.size_bytes == 56


@pytest.mark.parametrize("change", [
    {"base_version": 2}, {"mgmt_class": 3}, {"class_version": 1}, {"method": 0x81}, {"attribute": 0x19}, None])
def test_other_datagrams_are_not_parsed(change):
    good = build(Attribute.RTU, 1)
    assert parse(good) is not None
    if change is None:
        assert parse(good[:-1]) is parse(good + b"\0") is parse(b"") is None
    else:
        assert parse(MAD.pack(**vars(MAD.unpack(good)) | change) + good[MAD.size_bytes:]) is None


@pytest.mark.parametrize("change", [{"major": 1}, {"ip_version": 6}, {"src_ip": 1 << 32}, {"dst_ip": 1 << 127}])
def test_non_ipv4_headers_are_ignored(change):
    good = header(1, 2, 3)
    assert parse_header(good + b"x").private_data == b"x"
    assert parse_header(HEADER.pack(**vars(HEADER.unpack(good)) | change)) is None
    assert messages.CM_CLASS == 7
