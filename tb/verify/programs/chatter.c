/* Writes to and reads from its peer's memory until a request fails, then prints the result.
 * chatter SEED PORT [ADDRESS]: without an address it waits for the peer until its standard input ends. Its last line
 * is one of
 *   no peer           the peer ended before both were connected
 *   status N after M  a completion had status N, after M successful ones */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect.h"

#define BYTES 16384
#define DEPTH 8

struct hello {
    union ibv_gid gid;
    uint64_t address;
    uint32_t rkey, qp_num, psn;
};

static void end(const char *sentence) {
    puts(sentence);
    exit(1);
}

static int meet(int port, const char *address) {
    struct sockaddr_in where = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int s = socket(AF_INET, SOCK_STREAM, 0), on = 1, other;
    if (!address) {
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(s, (struct sockaddr *)&where, sizeof where) || listen(s, 1)) end("cannot listen");
        puts("listens");
        fflush(stdout);
        struct pollfd news[] = { { .fd = s, .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };
        poll(news, 2, -1);
        if (!news[0].revents) end("no peer");
        other = accept(s, NULL, NULL);
        close(s);
        return other;
    }
    inet_pton(AF_INET, address, &where.sin_addr);
    return connect(s, (struct sockaddr *)&where, sizeof where) ? -1 : s;
}

static int exchange(int s, const void *mine, void *theirs, size_t size) {
    return send(s, mine, size, MSG_NOSIGNAL) == (ssize_t)size && recv(s, theirs, size, MSG_WAITALL) == (ssize_t)size;
}

static void post(struct ibv_qp *qp, struct ibv_mr *mr, const struct hello *theirs) {
    uint32_t length = 1 + (uint32_t)rand() % BYTES;
    struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
        .opcode = rand() % 4 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
        .wr.rdma = { .remote_addr = theirs->address, .rkey = theirs->rkey } };
    if (ibv_post_send(qp, &wr, &bad)) end("cannot post");
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    srand((unsigned)atoi(arguments[1]));
    char on_stack[BYTES];
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd) end("no device");
    char *memory = rand() % 2 ? on_stack : malloc(BYTES);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                                          | IBV_ACCESS_REMOTE_READ);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = channel ? ibv_create_cq(context, 2 * DEPTH, NULL, channel, 0) : NULL;
    struct ibv_srq_init_attr of_srq = { .attr = { .max_wr = 16, .max_sge = 1 } };
    struct ibv_srq *srq = rand() % 2 ? ibv_create_srq(pd, &of_srq) : NULL;
    struct ibv_qp_init_attr of_qp = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = mr && cq ? ibv_create_qp(pd, &of_qp) : NULL;
    if (!qp) end("no queue pair");

    struct hello mine = { .address = (uintptr_t)memory, .rkey = mr->rkey, .qp_num = qp->qp_num,
                          .psn = (uint32_t)rand() & 0xFFFFFF }, theirs;
    ibv_query_gid(context, 1, 0, &mine.gid);
    int s = meet(atoi(arguments[2]), count > 3 ? arguments[3] : NULL);
    char ready = 1, other;
    if (s < 0 || !exchange(s, &mine, &theirs, sizeof mine)) end("no peer");
    if (to_rts(qp, theirs.gid, theirs.qp_num, mine.psn, theirs.psn)) end("no connection");
    if (!exchange(s, &ready, &other, 1)) end("no peer");

    unsigned long good = 0;
    for (int i = 0; i < DEPTH; i++) post(qp, mr, &theirs);
    for (;;) {
        struct ibv_wc wc;
        int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0) end("cannot poll");
        if (n && wc.status) {
            printf("status %d after %lu\n", wc.status, good);
            return 0; /* the daemon frees the rest */
        }
        if (n && !good++) {
            puts("talks");
            fflush(stdout);
        }
        if (n && good % 64 == 0) { /* register and deregister memory, too */
            struct ibv_mr *more = ibv_reg_mr(pd, memory, 1 + (size_t)rand() % BYTES, IBV_ACCESS_LOCAL_WRITE);
            if (!more || ibv_dereg_mr(more)) end("cannot register");
        }
        if (n) post(qp, mr, &theirs);
    }
}
