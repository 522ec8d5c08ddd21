"""Items of "Network RDMA Architecture Design", each with its test.

| section | item | test |
| --- | --- | --- |
| Current State | software loopback: memory to memory without a packet | test_loopback_copies_without_a_packet |
| Architecture Layers | memory regions with ids and keys | test_region_has_an_id_and_a_key_and_ends_when_unused |
| Architecture Layers | queue pairs | test_queue_pairs_are_numbered_and_limited |
| Architecture Layers | completion queue | test_completion_queue_is_never_overwritten |
| Architecture Layers | modes: loopback and network | test_loopback_rejects_the_same_requests_as_the_network |
| Architecture Layers | network layer over a NIC: builds, sends, receives | test_two_hosts_over_the_simple_nic |
| Packet Format | header, field by field, network byte order | test_header_fields_are_those_of_the_document |
| Packet Format | 40 bytes, EtherType | test_frame_is_ethernet_header_payload |
| Packet Format | opcodes | test_opcodes_are_those_of_the_document |
| Packet Format | payload up to MTU less headers; a READ has none | test_fragments_of_a_large_request |
| Connection | state machine | test_states_follow_the_document |
| Connection | destroy: ERROR, and everything is released | test_destroyed_queue_pair_releases_everything |
| Connection | setup sequence | test_connect_sequence |
| Transmission Path | impossible requests | test_impossible_request_is_rejected |
| Transmission Path | post, validate, build, send, complete with the ACK | test_write_completes_with_the_ack |
| Transmission Path | error completion if the QP is not in RTS | test_post_in_error_is_flushed |
| Reception Path | validate, write, complete, acknowledge | test_write_is_placed_completed_and_acknowledged |
| Reception Path | address or offset | test_remote_address_may_be_an_offset |
| Reception Path | unknown QP is dropped | test_unknown_qp_is_dropped |
| Reception Path | other EtherTypes are ignored | test_invalid_packet_is_described |
| Reception Path | permission, bounds | test_access_without_permission_is_rejected |
| Reception Path | ACK completes its request, or is dropped | test_unexpected_packet_is_counted_and_dropped |
| Reception Path | READ and READ_RESP | test_read_returns_the_data_of_the_peer |
| Ordering | execution and completion in order | test_many_requests_complete_in_order_once |
| Ordering | out-of-order queue | test_early_packets_wait_in_the_queue |
| Ordering | sequence numbers wrap | test_sequence_numbers_wrap |
| Configuration | socket network of QEMU | test_two_hosts_over_a_qemu_socket |
| Discovery | manually configured addresses | test_impossible_addresses_are_rejected |
| Discovery | "who has QP X?", MAC in response | test_discovery_by_broadcast |
| Performance | batches of up to 32 | test_a_batch_has_at_most_32_packets |
| Errors | Packet Loss: resend | test_lost_packet_is_retransmitted |
| Errors | Checksum Error: drop, NACK | test_damaged_packet_is_dropped_and_nacked |
| Errors | Invalid MR: error completion | test_invalid_mr_is_an_error_completion |
| Errors | QP Not Connected: -ENOTCONN | test_post_without_a_connection_returns_enotconn |
| Errors | Out of Memory: flow control | test_out_of_memory_is_flow_control |
| Errors | NIC TX Queue Full: backpressure | test_full_transmit_queue_is_backpressure |
| Errors | inflight table, time-out and retransmission | test_timeouts_follow_the_inflight_table |
| Errors | inflight table is bounded | test_window_is_bounded_by_the_oldest_unanswered_packet |
| Testing 1 | packet loopback: packets to the sending host | test_packet_loopback |
| Testing 2 | ping between hosts | test_ping |
| Testing 2 | write between two hosts, data arrives | test_many_requests_complete_in_order_once |
| Testing 2 | ping, connect, WRITE, READ, error cases over two cards | test_phase_two_of_the_document |
| Testing 2 | the same over a bad link | test_bad_link_preserves_bytes_order_and_number |
| Testing 3 | latency, throughput: `weft bench --only soft` | test_software_transfer_takes_processor_time |
| Testing 3 | messages larger than the MTU: fragmentation | test_fragments_of_a_large_request |
| Testing 3 | concurrent QPs | test_64_queue_pairs_share_a_host |

Zero copy is future work in the document. The document's files and its list of phases are those of an operating system.
"""

import ast
import re
from pathlib import Path


def test_every_named_test_is_there():
    named = set(re.findall(r"\| (test_\w+) \|", __doc__))
    assert len(named) > 40
    folders = Path(__file__).parent, Path(__file__).parents[2] / "verify/bench"
    there = {node.name for folder in folders for file in folder.glob("test_*.py")
             for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert named <= there, named - there
