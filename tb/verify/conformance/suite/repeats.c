/* Requests that reach the responder again, because the timeout of the requester is short or a packet is lost. */
#include "suite.h"

static const uint8_t TIMEOUTS[] = { 1, 10 }; /* 8 us and 4 ms */
enum { RUNS = sizeof TIMEOUTS, COUNT = 20, READ = 2000 };

static struct pair hurried(int run) {
    struct how how = HOW;
    how.timeout = TIMEOUTS[run];
    return connected(how);
}

/* Return whether the next request succeeds; the only other end is that the retries are exceeded. */
static int passes(struct pair *p) {
    struct ibv_wc wc = done(p->a.cq);
    CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR, "request %lu completes with '%s'",
          (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
    return wc.status == IBV_WC_SUCCESS;
}

CASE(repeated_atomics_are_carried_out_once,
     "IBTA 9.4.5, 9.7.5: a repeated ATOMIC has the former result, and is not carried out again") {
    for (int run = 0; run < RUNS; run++) {
        struct pair p = hurried(run);
        uint64_t *word = (void *)p.b.memory, *former = (void *)p.a.memory, count = 0;
        need_atomics(&p);
        for (uint64_t id = 0; id < COUNT; id++) {
            struct ibv_sge sge = part(&p.a, id * 8, 8);
            struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &p, &sge, 1, id);
            wr.wr.atomic.compare_add = 1;
            NEED(!post(p.qp, &wr));
        }
        for (; count < COUNT && passes(&p); count++)
            CHECK(former[count] == count, "addition %lu has the former value %lu", (unsigned long)count,
                  (unsigned long)former[count]);
        settle(&p);
        CHECK(*word >= count && *word <= COUNT, "%lu of %d additions succeed, and the sum is %lu", (unsigned long)count,
              COUNT, (unsigned long)*word);
    }
}

CASE(repeated_reads_have_their_data, "IBTA 9.7.5: a repeated READ is carried out again, each part at its own address") {
    for (int run = 0; run < RUNS; run++) {
        struct pair p = hurried(run);
        fill(p.b.memory, COUNT * READ, (unsigned)run);
        for (uint64_t id = 0; id < COUNT; id++) {
            struct ibv_sge sge = part(&p.a, id * READ, READ);
            struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &p, &sge, 1, id);
            wr.wr.rdma.remote_addr += id * READ;
            NEED(!post(p.qp, &wr));
        }
        for (size_t id = 0; id < COUNT && passes(&p); id++)
            CHECK(!memcmp(p.a.memory + id * READ, p.b.memory + id * READ, READ), "the data of read %zu differs", id);
    }
}

CASE(repeated_sends_arrive_once, "IBTA 9.7.5: a repeated SEND is acknowledged, and takes no further receive request") {
    for (int run = 0; run < RUNS; run++) {
        struct pair p = hurried(run);
        struct ibv_wc wc;
        uint32_t count = 0, arrived = 0;
        for (uint32_t id = 0; id < COUNT; id++) NEED(!give(p.peer, NULL, 0, id));
        for (uint32_t id = 0; id < COUNT; id++) {
            struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, &p, NULL, 0, id);
            wr.imm_data = id;
            NEED(!post(p.qp, &wr));
        }
        while (count < COUNT && passes(&p)) count++;
        settle(&p);
        for (; ibv_poll_cq(p.b.cq, 1, &wc) == 1 && !wc.status; arrived++)
            CHECK(wc.imm_data == arrived && wc.wr_id == arrived, "message %u arrives as number %u", wc.imm_data,
                  arrived);
        CHECK(arrived >= count, "%u messages of %u that were acknowledged arrive", arrived, count);
    }
}
