/* Declarations of this library: its objects, and the functions that its files share. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <infiniband/verbs.h>

#include "contract.h"
#include "newer.h"

/* Names that the public header defines as macros. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port
#undef ibv_get_device_list

/* Only these functions are exported, in the versions of the version script. */
#define PUBLIC __attribute__((visibility("default")))
#define container(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* Ring in memory of the daemon: `slots`, a power of two, of `slot_bytes` each. */
struct ring {
    struct weft_ring *head;
    uint8_t *first;
    uint32_t slots, slot_bytes;
};

struct device {
    struct ibv_device ibv;
    char room[1024]; /* libmlx5 takes any device for its own, longer structure, and reads there */
    uint64_t guid;
    int index;
    struct device *next;
};

struct context {
    int socket, doorbell, wake;
    pthread_mutex_t lock; /* of the socket: one call at a time */
    pid_t owner; /* process whose memory the daemon has, under the handle `memory` */
    uint32_t memory;
    struct weft_shared mapping; /* how that memory is mapped for the card, through the file `mapper` */
    int mapper;
    struct weft_bell *bell;
    uint8_t gid[16];
    struct weft_device attr;
    struct verbs_context verbs;
};

struct channel {
    struct ibv_comp_channel ibv;
    uint32_t handle;
};

struct cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ex;
    };
    struct ring ring;
    pthread_mutex_t lock;
    uint64_t name;
    uint32_t empty_polls, armed, comp_events, async_events;
    struct ibv_wc wc; /* current completion of the extended interface */
};

struct srq {
    struct ibv_srq ibv;
    struct ring ring;
    pthread_mutex_t lock;
    uint64_t name;
    uint32_t number, max_wr, max_sge, async_events;
};

struct ah {
    struct ibv_ah ibv;
    uint32_t ip, flow_label;
};

struct qp {
    struct ibv_qp_ex ex; /* begins with the struct ibv_qp */
    struct ring send, recv;
    pthread_mutex_t send_lock, recv_lock;
    uint64_t name;
    struct ibv_qp_cap cap;
    int sq_sig_all, extended, error; /* the last two are of the extended interface */
    uint32_t building, async_events;
    uint8_t max_rd_atomic;
};

/* Return true if a QP may execute this opcode: UD queue pairs have messages only, and reads and atomics need resources.
 * In ERR all requests are flushed. */
static inline int may_send(const struct qp *qp, unsigned opcode) {
    if (qp->ex.qp_base.qp_type == IBV_QPT_UD) return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
    return opcode < IBV_WR_RDMA_READ || qp->max_rd_atomic || qp->ex.qp_base.state == IBV_QPS_ERR;
}

static inline struct context *context_of(struct ibv_context *c) { return container(c, struct context, verbs.context); }
static inline struct cq *cq_of(struct ibv_cq *cq) { return container(cq, struct cq, ibv); }
static inline struct srq *srq_of(struct ibv_srq *srq) { return container(srq, struct srq, ibv); }
static inline struct qp *qp_of(struct ibv_qp *qp) { return container(qp, struct qp, ex.qp_base); }

/* socket.c: contents of a call and its answer; sizes do not include message headers. */
struct call {
    unsigned opcode;
    const void *body, *tail;
    size_t size, tail_size;
    const int *file; /* sent along, unless it is NULL */
    void *answer;
    size_t answer_size;
    int *files; /* received files */
    unsigned count;
};
const char *weft_path(void);
int weft_connect(const char *path);
int weft_call(struct context *c, struct call call);
int weft_destroy(struct context *c, unsigned kind, uint32_t handle);
void weft_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* map.c */
int map_region(const struct context *c, uint64_t dma, void *start, size_t length, unsigned access);
int lock_region(void *start, size_t length);
#define PAGE ((uintptr_t)4096)
#define WRITES (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* clock.c, in the other library: the program's simulated time, or 0 if its clock is wall-clock time. */
extern uint64_t weft_clock_ns(void) __attribute__((weak, visibility("default")));

/* ring.c */
int ring_map(struct ring *ring, int file, uint32_t slots, uint32_t slot_bytes);
void ring_unmap(struct ring *ring);
void ring_bell(struct context *c, uint32_t posts);
int time_is_simulated(void);
int nap(struct context *c, uint32_t notified);
static inline void *ring_slot(struct ring *ring, uint32_t number) {
    return ring->first + (size_t)(number & (ring->slots - 1)) * ring->slot_bytes;
}
#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define STORE(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELEASE)

/* names.c: identifiers of objects in events; that of an object that is gone is not found. */
uint64_t name_new(void *object);
void *name_find(uint64_t name);
void name_forget(uint64_t name);

/* devices.c, context.c, queries.c */
int say_hello(struct context *c, struct weft_welcome *welcome, int files[4]);
void add_queries(struct verbs_context *v);

/* cq.c, cq_ex.c */
struct cq *cq_create(struct ibv_context *c, uint32_t cqe, void *context, struct ibv_comp_channel *channel, int vector);
int cq_take(struct cq *cq, struct ibv_wc *wc);
void cq_forget(struct cq *cq, uint32_t qp_num);
int poll_locked(struct cq *cq, int count, struct ibv_wc *wc);
int poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr);

/* ah.c */
void put_destination(struct weft_send_slot *slot, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);

/* qp.c, post.c, qp_ex.c, srq.c */
struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr);
void add_builders(struct ibv_qp_ex *ex);
void put_sges(void *slot_end, const struct ibv_sge *from, size_t count);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr);
int get_srq_num(struct ibv_srq *srq, uint32_t *number);
