/* Data: lengths around packets, padding, lists of SGEs, messages without data, immediate data, inline data, order. */
#include "suite.h"

enum { GUARD = 64, INLINE = 64 };

static const size_t LENGTHS[] = { 1, 3, 4, 5, 63, 64, 65, MTU - 1, MTU, MTU + 1, 2 * MTU - 1, 2 * MTU, 2 * MTU + 1,
                                  4095, 4096, 4097, 8191, 8192, 8193, 20001 };

/* Carry out a request of a length between two guards that must stay as they are. */
static void carry(struct pair *p, enum ibv_wr_opcode opcode, size_t length, size_t from, size_t to, uint64_t id) {
    int read = opcode == IBV_WR_RDMA_READ, send = opcode == IBV_WR_SEND;
    unsigned char *source = (read ? p->b.memory : p->a.memory) + from;
    unsigned char *target = (read ? p->a.memory : p->b.memory) + to;
    struct ibv_sge sge = part(&p->a, read ? to : from, length), into = part(&p->b, to, length);
    struct ibv_send_wr wr = request(opcode, p, &sge, 1, id);
    wr.wr.rdma.remote_addr += read ? from : to;
    fill(source, length, (unsigned)id);
    memset(target - GUARD, 0xA5, length + 2 * GUARD);
    if (send) NEED(!give(p->peer, &into, 1, id));
    NEED(!post(p->qp, &wr));
    succeeds(p->a.cq, id);
    if (send) {
        struct ibv_wc wc = done(p->b.cq);
        STATUS(wc, IBV_WC_SUCCESS);
        CHECK(wc.byte_len == length, "byte_len is %u instead of %zu", wc.byte_len, length);
    }
    CHECK(filled(target, length, (unsigned)id), "%zu bytes from offset %zu to %zu differ", length, from, to);
    CHECK(all(target - GUARD, GUARD, 0xA5) && all(target + length, GUARD, 0xA5),
          "%zu bytes to offset %zu change bytes beside them", length, to);
}

static void carry_lengths(enum ibv_wr_opcode opcode) {
    struct pair p = connected(HOW);
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) carry(&p, opcode, LENGTHS[i], GUARD, GUARD, i + 1);
}

CASE(writes_around_packet_sizes, "IBTA 9.7: messages are cut at the path MTU; nothing beyond them is written") {
    carry_lengths(IBV_WR_RDMA_WRITE);
}

CASE(reads_around_packet_sizes, "IBTA 9.7: responses are cut at the path MTU; nothing beyond them is written") {
    carry_lengths(IBV_WR_RDMA_READ);
}

CASE(sends_around_packet_sizes, "IBTA 9.7: messages are cut at the path MTU; byte_len is their length") {
    carry_lengths(IBV_WR_SEND);
}

CASE(every_path_mtu, "IBTA 9.7; ibv_modify_qp(3): path_mtu up to the port's active MTU") {
    struct pair p = ends();
    for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= p.a.mtu && mtu <= p.b.mtu; mtu++) {
        struct how how = HOW;
        how.mtu = mtu;
        p.qp = make_qp(&p.a, rc(&p.a));
        p.peer = make_qp(&p.b, rc(&p.b));
        join(&p.a, p.qp, &p.b, p.peer, how);
        carry(&p, IBV_WR_RDMA_WRITE, 3 * PAGE + 1, GUARD, GUARD, 1);
        carry(&p, IBV_WR_RDMA_READ, 3 * PAGE + 1, GUARD, GUARD, 2);
        carry(&p, IBV_WR_SEND, 3 * PAGE + 1, GUARD, GUARD, 3);
    }
}

CASE(padding_at_every_offset, "IBTA 9.2 (PadCnt), 7.8 (CRC): lengths modulo 4 at all alignments") {
    struct pair p = connected(HOW);
    uint64_t id = 1;
    for (size_t length = 1; length <= 5; length++)
        for (size_t shift = 0; shift < 4; shift++) {
            carry(&p, IBV_WR_RDMA_WRITE, length, GUARD + shift, GUARD + 3 - shift, id++);
            carry(&p, IBV_WR_RDMA_READ, length, GUARD + shift, GUARD + 3 - shift, id++);
        }
    for (size_t shift = 1; shift < 4; shift++)
        carry(&p, IBV_WR_RDMA_WRITE, 2 * MTU + shift, GUARD + shift, PAGE - shift, id++);
}

CASE(long_message, "IBTA 9.7: a message has up to 2^31 bytes, in any number of packets") {
    struct pair p = connected(HOW);
    enum { LENGTH = 300001 };
    unsigned char *from = malloc(LENGTH), *to = calloc(1, LENGTH);
    NEED(from && to);
    struct ibv_mr *mr = ibv_reg_mr(p.a.pd, from, LENGTH, EVERYTHING);
    struct ibv_mr *into = ibv_reg_mr(p.b.pd, to, LENGTH, EVERYTHING);
    NEED(mr && into);
    struct ibv_sge sge = { (uintptr_t)from, LENGTH, mr->lkey };
    struct ibv_send_wr wr = write_of(&p, &sge, 1, IBV_SEND_SIGNALED);
    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = into->rkey;
    fill(from, LENGTH, 9);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    CHECK(filled(to, LENGTH, 9), "the data differs");
}

CASE(lists_are_gathered_and_scattered, "IBTA 10.8.2, ibv_post_send(3): SGEs of any length, also 0, in their order") {
    struct pair p = connected(HOW);
    const size_t from[SGES] = { 7, 0, 2 * MTU + 3, 500 }, to[SGES] = { MTU - 1, 1, 0, 2 * MTU };
    struct ibv_sge sges[SGES], into[SGES];
    size_t total = 0, seen = 0;
    unsigned char joined[4 * MTU];
    fill(p.a.memory, MEMORY, 5);
    memset(p.b.memory, 0xA5, MEMORY);
    for (int i = 0; i < SGES; i++) {
        sges[i] = part(&p.a, (size_t)(i * 9000 + 3), from[i]);
        memcpy(joined + total, p.a.memory + i * 9000 + 3, from[i]);
        total += from[i];
        into[i] = part(&p.b, (size_t)(i * 9000 + 1), to[i]);
    }
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, sges, SGES, 1);
    NEED(!give(p.peer, into, SGES, 2) && !post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    struct ibv_wc wc = done(p.b.cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == total, "byte_len is %u instead of %zu", wc.byte_len, total);
    for (int i = 0; i < SGES; i++) {
        size_t here = total - seen < to[i] ? total - seen : to[i];
        CHECK(!memcmp(p.b.memory + i * 9000 + 1, joined + seen, here), "SGE %d differs", i);
        CHECK(p.b.memory[i * 9000 + 1 + (int)here] == 0xA5, "SGE %d has bytes beyond the message", i);
        seen += here;
    }
    struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &p, sges, SGES, 3);
    fill(p.b.memory, total, 6);
    NEED(!post(p.qp, &read));
    succeeds(p.a.cq, 3);
    for (int i = 0, at = 0; i < SGES; at += (int)from[i++])
        CHECK(!memcmp(p.a.memory + i * 9000 + 3, p.b.memory + at, from[i]), "SGE %d of a read differs", i);
}

CASE(empty_send_takes_a_receive, "IBTA 9.4.1: a SEND may be without data; it consumes a receive request") {
    struct pair p = connected(HOW);
    struct ibv_sge into = part(&p.b, 0, 100), none = part(&p.a, 0, 0);
    memset(p.b.memory, 0xA5, 100);
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, NULL, 0, 1), with_sge = request(IBV_WR_SEND, &p, &none, 1, 2);
    NEED(!give(p.peer, &into, 1, 11) && !give(p.peer, NULL, 0, 12));
    NEED(!post(p.qp, &wr) && !post(p.qp, &with_sge));
    for (uint64_t id = 11; id <= 12; id++) {
        struct ibv_wc wc = done(p.b.cq);
        CHECK(wc.wr_id == id && !wc.status && !wc.byte_len, "receive %lu: '%s', %u bytes", (unsigned long)wc.wr_id,
              ibv_wc_status_str(wc.status), wc.byte_len);
        succeeds(p.a.cq, id - 10);
    }
    CHECK(all(p.b.memory, 100, 0xA5), "an empty message changes memory");
}

CASE(empty_write_ignores_its_key,
     "IBTA C9-88: for a zero-length RDMA READ or WRITE request the R_Key is not validated") {
    struct pair p = connected(HOW);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &p, NULL, 0, 1);
    wr.wr.rdma.rkey = 0;
    wr.wr.rdma.remote_addr = 0;
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    settle(&p);
    CHECK(state_of(p.qp) == IBV_QPS_RTS && state_of(p.peer) == IBV_QPS_RTS, "a QP left RTS");
}

CASE(empty_read_ignores_its_key,
     "IBTA C9-88: for a zero-length RDMA READ or WRITE request the R_Key is not validated") {
    struct pair p = connected(HOW);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &p, NULL, 0, 1);
    wr.wr.rdma.rkey = 0x12345678;
    wr.wr.rdma.remote_addr = UINT64_MAX;
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
}

CASE(empty_requests_keep_the_order, "IBTA 10.8.5: requests without data complete in order, too") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 5000);
    for (uint64_t id = 1; id <= 12; id++) {
        struct ibv_send_wr wr = request(id % 4 == 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &p, id % 2 ? &sge : NULL,
                                        id % 2 ? 1 : 0, id);
        NEED(!post(p.qp, &wr));
    }
    for (uint64_t id = 1; id <= 12; id++) succeeds(p.a.cq, id);
}

CASE(write_with_immediate, "IBTA 9.4.3: it consumes a receive request; its data goes to the address of the RETH") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 3000), into = part(&p.b, 8192, 100);
    fill(p.a.memory, 3000, 4);
    memset(p.b.memory + 8192, 0xA5, 100);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &p, &sge, 1, 1);
    wr.imm_data = htobe32(0x01020304);
    NEED(!give(p.peer, &into, 1, 2) && !post(p.qp, &wr));
    struct ibv_wc wc = done(p.b.cq);
    STATUS(wc, IBV_WC_SUCCESS);
    CHECK(wc.wr_id == 2 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wc_flags & IBV_WC_WITH_IMM, "its fields");
    CHECK(be32toh(wc.imm_data) == 0x01020304, "immediate data is %x", be32toh(wc.imm_data));
    CHECK(wc.byte_len == 3000, "byte_len is %u instead of 3000", wc.byte_len);
    CHECK(filled(p.b.memory, 3000, 4) && all(p.b.memory + 8192, 100, 0xA5), "the data is elsewhere");
    succeeds(p.a.cq, 1);
}

CASE(empty_write_with_immediate, "IBTA 9.4.3, C9-88: it consumes a receive request, and no key is validated") {
    struct pair p = connected(HOW);
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM, &p, NULL, 0, 1);
    wr.imm_data = htobe32(7);
    wr.wr.rdma.rkey = wr.wr.rdma.remote_addr = 0;
    NEED(!give(p.peer, NULL, 0, 2) && !post(p.qp, &wr));
    struct ibv_wc wc = done(p.b.cq);
    STATUS(wc, IBV_WC_SUCCESS);
    CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && be32toh(wc.imm_data) == 7 && !wc.byte_len, "its fields");
    succeeds(p.a.cq, 1);
}

CASE(data_precedes_its_signal, "IBTA 9.5, 10.8.3: a message arrives after the data of the writes before it") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 40000);
    struct ibv_send_wr signal = request(IBV_WR_RDMA_WRITE_WITH_IMM, &p, NULL, 0, 2);
    for (unsigned round = 1; round <= 5; round++) {
        struct ibv_send_wr wr = write_of(&p, &sge, 1, 0);
        fill(p.a.memory, 40000, round);
        NEED(!give(p.peer, NULL, 0, round) && !post(p.qp, &wr) && !post(p.qp, &signal));
        succeeds(p.b.cq, round);
        CHECK(filled(p.b.memory, 40000, round), "the immediate of round %u is there before the data", round);
        succeeds(p.a.cq, 2);
    }
}

CASE(read_sees_earlier_write, "IBTA 10.8.3 (ordering of requests): a READ is carried out after a WRITE before it") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 5000), into = part(&p.a, 8192, 5000);
    for (unsigned round = 1; round <= 5; round++) {
        struct ibv_send_wr wr = write_of(&p, &sge, 1, 0), read = request(IBV_WR_RDMA_READ, &p, &into, 1, 2);
        fill(p.a.memory, 5000, round);
        NEED(!post(p.qp, &wr) && !post(p.qp, &read));
        succeeds(p.a.cq, 2);
        CHECK(filled(p.a.memory + 8192, 5000, round), "round %u: the read has the former data", round);
    }
}

CASE(completed_data_is_at_the_peer, "IBTA 9.7.5: a completed WRITE is acknowledged: its data is in the peer's memory") {
    struct pair p = connected(HOW);
    for (uint64_t id = 1; id <= 20; id++) carry(&p, IBV_WR_RDMA_WRITE, 700 * id, GUARD, GUARD, id);
}

CASE(exact_receive_and_short_message,
     "IBTA 9.4.1; ibv_poll_cq(3): a receive may be as long as the message, or longer") {
    struct pair p = connected(HOW);
    struct ibv_sge sge = part(&p.a, 0, 2 * MTU), into = part(&p.b, 0, 2 * MTU), more = part(&p.b, 0, 9 * MTU);
    struct ibv_send_wr wr = request(IBV_WR_SEND, &p, &sge, 1, 1);
    NEED(!give(p.peer, &into, 1, 1) && !give(p.peer, &more, 1, 2) && !post(p.qp, &wr) && !post(p.qp, &wr));
    succeeds(p.b.cq, 1);
    struct ibv_wc wc = done(p.b.cq);
    CHECK(!wc.status && wc.byte_len == 2 * MTU, "byte_len is %u", wc.byte_len);
}

CASE(both_directions_at_once, "IBTA 9.7: requests and responses of both QPs of a connection are independent") {
    struct pair p = connected(HOW);
    struct ibv_sge near = part(&p.a, 0, 20000), far = part(&p.b, 0, 20000);
    fill(p.a.memory, 20000, 1);
    fill(p.b.memory, 20000, 2);
    for (uint64_t id = 1; id <= 8; id++) {
        struct ibv_send_wr wr = write_of(&p, &near, id, IBV_SEND_SIGNALED);
        struct ibv_send_wr back = write_of(&p, &far, id, IBV_SEND_SIGNALED);
        wr.wr.rdma.remote_addr += 40000;
        back.wr.rdma.remote_addr = (uintptr_t)p.a.memory + 40000;
        back.wr.rdma.rkey = p.a.mr->rkey;
        NEED(!post(p.qp, &wr) && !post(p.peer, &back));
    }
    for (uint64_t id = 1; id <= 8; id++) {
        succeeds(p.a.cq, id);
        succeeds(p.b.cq, id);
    }
    CHECK(filled(p.b.memory + 40000, 20000, 1) && filled(p.a.memory + 40000, 20000, 2), "the data differs");
}

CASE(loopback_on_one_device, "IBTA 9.7: QPs of one port may be connected to each other") {
    struct pair p = { .a = open_end(0), .b = open_end(0) };
    p.qp = make_qp(&p.a, rc(&p.a));
    p.peer = make_qp(&p.b, rc(&p.b));
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    carry(&p, IBV_WR_RDMA_WRITE, 5000, GUARD, GUARD, 1);
    carry(&p, IBV_WR_RDMA_READ, 5000, GUARD, GUARD, 2);
    carry(&p, IBV_WR_SEND, 5000, GUARD, GUARD, 3);
}

/* ---------------------------------------------------------------------------------------------------------- inline */

static struct ibv_qp_init_attr inline_of(const struct end *end, uint32_t length) {
    struct ibv_qp_init_attr init = rc(end);
    init.cap.max_inline_data = length;
    return init;
}

static void with_inline(struct ibv_qp_init_attr *init) { init->cap.max_inline_data = INLINE; }

CASE(inline_capacity_is_probed,
     "ibv_create_qp(3): the actual capacities are at least those asked for; EINVAL or ENOMEM if too large") {
    struct pair p = ends();
    struct ibv_qp_init_attr init = inline_of(&p.a, 1 << 30);
    CHECK(!ibv_create_qp(p.a.pd, &init) && (errno == EINVAL || errno == ENOMEM), "2^30 bytes of inline data: %s",
          strerror(errno));
    uint32_t length = 1 << 16;
    struct ibv_qp *qp = NULL;
    for (; length && !qp; length /= 2) {
        init = inline_of(&p.a, length);
        qp = ibv_create_qp(p.a.pd, &init);
        CHECK(qp || errno == EINVAL || errno == ENOMEM, "%u bytes of inline data: %s", length, strerror(errno));
        CHECK(!qp || init.cap.max_inline_data >= length, "%u bytes instead of %u", init.cap.max_inline_data, length);
    }
    LACKS(!qp, "no inline data");
}

CASE(inline_buffer_is_free_at_once,
     "ibv_post_send(3): IBV_SEND_INLINE: the buffer can be reused after the call; no lkey") {
    struct pair p = connected_by(HOW, with_inline, OF_A);
    unsigned char local[INLINE];
    for (unsigned round = 1; round <= 10; round++) {
        size_t length = (size_t)(round * 6);
        struct ibv_sge sge = { (uintptr_t)local, (uint32_t)length, 0xDEAD };
        struct ibv_send_wr wr = write_of(&p, &sge, round, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        wr.wr.rdma.remote_addr += round * 100;
        fill(local, length, round);
        NEED(!post(p.qp, &wr));
        memset(local, 0xEE, sizeof local);
    }
    for (uint64_t id = 1; id <= 10; id++) succeeds(p.a.cq, id);
    for (unsigned round = 1; round <= 10; round++)
        CHECK(filled(p.b.memory + round * 100, round * 6, round), "the data of request %u differs", round);
}

CASE(inline_lists_and_sends, "ibv_post_send(3): inline data of several SGEs, in sends too") {
    struct pair p = connected_by(HOW, with_inline, OF_A);
    unsigned char one[9], two[30];
    struct ibv_sge sges[3] = { { (uintptr_t)one, 9, 0 }, { (uintptr_t)two, 0, 0 }, { (uintptr_t)two, 30, 0 } };
    struct ibv_sge into = part(&p.b, 0, 100);
    struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &p, sges, 3, 1);
    wr.send_flags |= IBV_SEND_INLINE;
    wr.imm_data = 77;
    fill(one, 9, 1);
    fill(two, 30, 2);
    NEED(!give(p.peer, &into, 1, 2) && !post(p.qp, &wr));
    memset(two, 0, 30);
    struct ibv_wc wc = done(p.b.cq);
    CHECK(!wc.status && wc.byte_len == 39 && wc.imm_data == 77, "byte_len is %u", wc.byte_len);
    CHECK(filled(p.b.memory, 9, 1) && filled(p.b.memory + 9, 30, 2), "the data differs");
}

CASE(inline_beyond_the_capacity_is_refused,
     "ibv_post_send(3): max_inline_data limits the sum of the SGEs; EINVAL or ENOMEM") {
    struct pair p = ends();
    struct ibv_qp_init_attr init = inline_of(&p.a, 16);
    p.qp = ibv_create_qp(p.a.pd, &init);
    LACKS(!p.qp, "a QP with 16 bytes of inline data: %s", strerror(errno));
    p.peer = make_qp(&p.b, rc(&p.b));
    join(&p.a, p.qp, &p.b, p.peer, HOW);
    uint32_t most = init.cap.max_inline_data;
    LACKS(most > MEMORY / 2, "max_inline_data is %u", most);
    struct ibv_sge sges[2] = { part(&p.a, 0, most), part(&p.a, 0, 1) };
    struct ibv_send_wr wr = write_of(&p, sges, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    NEED(!post(p.qp, &wr));
    succeeds(p.a.cq, 1);
    wr.num_sge = 2;
    CHECK(post(p.qp, &wr), "%u bytes of inline data are accepted with max_inline_data %u", most + 1, most);
}
