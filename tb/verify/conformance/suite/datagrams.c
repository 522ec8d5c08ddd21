/* Unreliable datagrams. */
#include "suite.h"

#include <time.h>

enum { QKEY = 0x1234, GRH = 40, TRIES = 20, POLLS = 2000, TRY_MS = 50 };

static struct ibv_ah *ah;

static struct ibv_qp *make_ud(struct end *end, uint32_t qkey) {
    struct ibv_qp_init_attr init = rc(end);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *qp = ibv_create_qp(end->pd, &init);
    LACKS(!qp, "a UD QP: %s", strerror(errno));
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };
    NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
    attr.qp_state = IBV_QPS_RTR;
    NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RTS;
    NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
    return qp;
}

static struct pair ud(void) {
    struct pair p = ends();
    p.qp = make_ud(&p.a, QKEY);
    p.peer = make_ud(&p.b, QKEY);
    struct ibv_ah_attr attr = to_end(&p.a, &p.b);
    ah = ibv_create_ah(p.a.pd, &attr);
    NEED(ah);
    return p;
}

static struct ibv_send_wr datagram(const struct pair *p, struct ibv_sge *sge, uint64_t id) {
    struct ibv_send_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = sge ? 1 : 0, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, .wr.ud = { .ah = ah, .remote_qpn = p->peer->qp_num, .remote_qkey = QKEY } };
    return wr;
}

static long milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Send datagrams until the receive request completes: devices may lose any. */
static struct ibv_wc arrives(struct pair *p, struct ibv_send_wr *wr) {
    struct ibv_wc wc;
    for (int i = 0; i < TRIES; i++) {
        NEED(!post(p->qp, wr));
        succeeds(p->a.cq, wr->wr_id);
        long end = milliseconds() + TRY_MS;
        for (int polls = 0; polls < POLLS || milliseconds() < end; polls++)
            if (ibv_poll_cq(p->b.cq, 1, &wc) == 1) return wc;
    }
    leave(FAIL, "none of %d datagrams arrives", TRIES);
}

CASE(datagram_has_a_header_in_front,
     "IBTA 11.4.2.1, ibv_poll_cq(3): 40 bytes of GRH precede the data; byte_len counts them") {
    struct pair p = ud();
    struct ibv_sge sge = part(&p.a, 0, 200), into = part(&p.b, 0, 300);
    struct ibv_send_wr wr = datagram(&p, &sge, 1);
    fill(p.a.memory, 200, 5);
    memset(p.b.memory, 0xA5, 400);
    NEED(!give(p.peer, &into, 1, 2));
    struct ibv_wc wc = arrives(&p, &wr);
    STATUS(wc, IBV_WC_SUCCESS);
    CHECK(wc.byte_len == 200 + GRH, "byte_len is %u instead of %d", wc.byte_len, 200 + GRH);
    CHECK(wc.wc_flags & IBV_WC_GRH, "the flag IBV_WC_GRH is missing");
    CHECK(wc.src_qp == p.qp->qp_num && wc.qp_num == p.peer->qp_num, "src_qp or qp_num differs");
    CHECK(filled(p.b.memory + GRH, 200, 5) && all(p.b.memory + GRH + 200, 60, 0xA5), "the data differs");
}

CASE(empty_datagram, "IBTA 9.8.3: a datagram may be without data") {
    struct pair p = ud();
    struct ibv_sge into = part(&p.b, 0, 300);
    struct ibv_send_wr wr = datagram(&p, NULL, 1);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htobe32(99);
    NEED(!give(p.peer, &into, 1, 2));
    struct ibv_wc wc = arrives(&p, &wr);
    CHECK(!wc.status && wc.byte_len == GRH, "byte_len is %u", wc.byte_len);
    CHECK(wc.wc_flags & IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 99, "the immediate data differs");
}

CASE(longest_datagram, "IBTA 9.8.3, C10-93.1.1: a datagram has up to the port's MTU; longer ones are not sent") {
    struct pair p = ud();
    size_t most = (size_t)128 << p.a.mtu;
    struct ibv_sge sge = part(&p.a, 0, most), into = part(&p.b, 0, most + GRH), more = part(&p.a, 0, most + 1);
    struct ibv_sge longer_into = part(&p.b, 0, most + GRH + 100);
    struct ibv_send_wr wr = datagram(&p, &sge, 1), longer = datagram(&p, &more, 2);
    fill(p.a.memory, most, 5);
    NEED(!give(p.peer, &into, 1, 2));
    struct ibv_wc wc = arrives(&p, &wr);
    CHECK(!wc.status && wc.byte_len == most + GRH && filled(p.b.memory + GRH, most, 5), "byte_len is %u", wc.byte_len);
    NEED(!give(p.peer, &longer_into, 1, 3));
    if (post(p.qp, &longer)) return;
    wc = done(p.a.cq); /* by the specification a success; devices report an error, too */
    CHECK(!wc.status || wc.status == IBV_WC_LOC_LEN_ERR, "it completes with '%s'", ibv_wc_status_str(wc.status));
    settle(&p);
    nothing(p.b.cq, "a datagram of more than the MTU");
}

CASE(wrong_qkey_is_dropped, "IBTA 9.6.1: a datagram with another Q_Key is dropped; the sender completes") {
    struct pair p = ud();
    struct ibv_sge sge = part(&p.a, 0, 20), into = part(&p.b, 0, 300);
    struct ibv_send_wr wrong = datagram(&p, &sge, 1), wr = datagram(&p, &sge, 2);
    wrong.wr.ud.remote_qkey = QKEY + 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    NEED(!give(p.peer, &into, 1, 2) && !post(p.qp, &wrong));
    succeeds(p.a.cq, 1);
    struct ibv_wc wc = arrives(&p, &wr);
    CHECK(wc.wc_flags & IBV_WC_WITH_IMM, "the datagram with the wrong Q_Key arrives");
}

CASE(high_qkey_means_the_own_one, "IBTA 10.2.5: with the high bit set, the Q_Key of the sending QP is used") {
    struct pair p = ud();
    struct ibv_sge sge = part(&p.a, 0, 20), into = part(&p.b, 0, 300);
    struct ibv_send_wr wr = datagram(&p, &sge, 1);
    wr.wr.ud.remote_qkey = 0x80000001;
    NEED(!give(p.peer, &into, 1, 2));
    struct ibv_wc wc = arrives(&p, &wr);
    STATUS(wc, IBV_WC_SUCCESS);
}

CASE(datagram_without_a_receive_is_lost, "IBTA 9.8.3: nothing waits for a receiver; the sender completes") {
    struct pair p = ud();
    struct ibv_sge sge = part(&p.a, 0, 20), into = part(&p.b, 0, 300);
    struct ibv_send_wr lost = datagram(&p, &sge, 1), wr = datagram(&p, &sge, 2);
    for (int i = 0; i < 5; i++) {
        NEED(!post(p.qp, &lost));
        succeeds(p.a.cq, 1);
    }
    settle(&p);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    NEED(!give(p.peer, &into, 1, 2));
    struct ibv_wc wc = arrives(&p, &wr);
    CHECK(wc.wc_flags & IBV_WC_WITH_IMM, "a datagram waited for the receive request");
}

CASE(answer_to_a_datagram, "ibv_create_ah_from_wc(3): completion and header give the sender's address") {
    struct pair p = ud();
    struct ibv_sge sge = part(&p.a, 0, 20), into = part(&p.b, 0, 300), back = part(&p.a, 1000, 300);
    struct ibv_send_wr wr = datagram(&p, &sge, 1);
    NEED(!give(p.peer, &into, 1, 2) && !give(p.qp, &back, 1, 3));
    struct ibv_wc wc = arrives(&p, &wr);
    struct ibv_ah *answer = ibv_create_ah_from_wc(p.b.pd, &wc, (struct ibv_grh *)(void *)p.b.memory, 1);
    CHECK(answer, "ibv_create_ah_from_wc: %s", strerror(errno));
    struct ibv_sge from = part(&p.b, 500, 30);
    fill(p.b.memory + 500, 30, 9);
    struct ibv_send_wr reply = { .wr_id = 5, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED, .wr.ud = { .ah = answer, .remote_qpn = wc.src_qp, .remote_qkey = QKEY } };
    NEED(!post(p.peer, &reply));
    succeeds(p.b.cq, 5);
    wc = done(p.a.cq);
    CHECK(wc.wr_id == 3 && !wc.status && filled(p.a.memory + 1000 + GRH, 30, 9), "the answer differs");
}

CASE(datagram_qp_refuses_rdma, "IBTA 10.2.4, ibv_post_send(3): a UD QP has no RDMA and no atomics") {
    struct pair p = ud();
    struct ibv_sge sge = part(&p.a, 0, 20);
    struct ibv_send_wr wr = datagram(&p, &sge, 1);
    wr.opcode = IBV_WR_RDMA_WRITE;
    if (post(p.qp, &wr)) return;
    struct ibv_wc wc = done(p.a.cq);
    CHECK(wc.status != IBV_WC_SUCCESS, "a WRITE succeeds on a UD QP");
}

CASE(datagrams_of_a_qp_keep_their_order,
     "IBTA 9.8.3: datagrams of one QP to another are in order, where none is lost") {
    struct pair p = ud();
    struct ibv_sge into = part(&p.b, 0, 300);
    for (uint64_t id = 1; id <= 16; id++) NEED(!give(p.peer, &into, 1, id));
    for (uint32_t i = 1; i <= 16; i++) {
        struct ibv_send_wr wr = datagram(&p, NULL, i);
        wr.opcode = IBV_WR_SEND_WITH_IMM;
        wr.imm_data = i;
        NEED(!post(p.qp, &wr));
        succeeds(p.a.cq, i);
    }
    settle(&p);
    struct ibv_wc wc = done(p.b.cq);
    uint32_t last = 0;
    do {
        CHECK(wc.imm_data > last, "datagram %u arrives after %u", wc.imm_data, last);
        last = wc.imm_data;
    } while (ibv_poll_cq(p.b.cq, 1, &wc) == 1);
}
