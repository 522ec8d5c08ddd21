/* Direct back end: requests between programs of one daemon, executed from memory to memory.
 *
 * A thread executes them; the daemon creates, changes and destroys the objects. Everything is under one lock. Programs
 * are not trusted: each word of a shared ring is copied once, then checked, then used. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "contract.h"

#define PUBLIC __attribute__((visibility("default")))
#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define STORE(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELEASE)
#define FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
/* After a copy from shared memory: the compiler must not read the shared memory instead of the copy. */
#define COPIED() __asm__ volatile("" ::: "memory")

enum { SGES_MAX = 16, INLINE_MAX = 4096, WHY_BYTES = 160, DATAGRAM_QPS = 1 << 12,
       DATAGRAM_MAX = 4096, WINDOW = 4096 };
enum notice_kind { OF_QP = 1, OF_CQ, OF_SRQ, OF_CHANNEL, VIOLATED, ENDED };

/* News for the daemon; `tag` is the daemon's name of the object. */
struct notice {
    uint64_t tag;
    uint32_t kind, event;
};

/* Daemon's end of a ring; `own` is the index of this side. */
struct ring {
    struct weft_ring *head;
    uint8_t *first;
    uint32_t slots, slot_bytes, own;
};

/* Data of a region that was read for several send requests: those of `qp` before number `until`. */
struct window {
    struct qp *qp;
    struct region *region;
    uint64_t va, length;
    uint32_t until;
    uint8_t data[WINDOW];
};

/* Small writes of `qp`, from number `first` to before `until`, whose data was copied together. Addresses of the next one
 * are larger by `length`. */
struct merged {
    struct qp *qp;
    uint32_t first, until, length, lkey, rkey;
    uint64_t local, remote;
};

struct fabric {
    pthread_mutex_t lock;
    pthread_t thread;
    uint32_t wanted; /* callers that wait for the lock */
    int kick, news, epoll, stop, sleeping, changed;
    uint64_t spin_ns;
    struct host *hosts;
    struct client *clients;
    struct member *members;
    struct qp *active, **active_end; /* with something to execute */
    struct qp *stalled; /* that wait for a peer or a receive request */
    struct notice *notices;
    size_t notice_count, notice_room;
    uint8_t *bounce;
    uint64_t copies, copies_of; /* begins and ends of copies, and the client of the last one */
    struct window window;
    struct merged merged;
};

/* Attachment of a QP to a multicast group; those of a fabric are in the order in which they were made. */
struct member {
    struct member *next;
    struct qp *qp;
    uint32_t group;
};

/* Card of a host: its keys and QP numbers. The numbers of UD QPs are the last `DATAGRAM_QPS` ones of all. */
struct host {
    struct fabric *fabric;
    struct host *next;
    uint32_t ip, qp_mask, region_count;
    struct qp **qps, *datagram_qps[DATAGRAM_QPS];
    struct region **regions;
    struct traffic { uint64_t messages, bytes; } sent, received;
};

static inline void count(struct traffic *traffic, uint64_t bytes) { traffic->messages++; traffic->bytes += bytes; }

/* Open context of a program. */
struct client {
    struct host *host;
    struct client *next;
    struct qp *qps;
    struct weft_bell *bell;
    uint64_t tag;
    uint32_t posted;
    int doorbell, wake;
    int dead; /* it violated the protocol: its rings are not read any more */
    int has_news, flushes; /* the latter: a QP is or was in ERR, which flushes receive requests too */
    char why[WHY_BYTES];
};

/* Memory region; addresses in work requests plus `offset` are addresses of the program. */
struct region {
    struct client *client;
    int file, gone;
    int process; /* number of the process that has `file`, 0 if others may have it */
    uint32_t index, lkey, rkey, pd, access;
    uint64_t va, length, offset;
};

struct cq {
    struct client *client;
    struct ring ring;
    uint64_t tag, user;
    int channel; /* socket of its completion channel, or -1 */
    uint32_t done; /* last request for an event that was fulfilled */
    int overrun;
};

/* Receive requests of a QP or of an SRQ. */
struct receives {
    struct client *client;
    struct ring ring;
    uint64_t tag;
    uint32_t sges, limit;
};

struct part {
    uint64_t va;
    uint32_t length, key;
};

/* Scatter-gather list. */
struct parts {
    uint32_t count;
    uint64_t length;
    struct part part[SGES_MAX];
};

struct request {
    uint64_t wr_id, remote_addr, compare_add, swap, done;
    uint32_t rkey, imm, inline_length;
    uint8_t opcode, flags;
    int refused; /* status of a request that is invalid by itself */
    int checked, admitted;
    struct parts local;
    uint8_t inlined[INLINE_MAX];
};

/* Attributes as the daemon sets them, in one struct with the layout of `Attributes` in engine.py. */
struct attributes {
    uint32_t state, peer_ip, peer_qpn, send_psn, expected_psn, access, max_rd_atomic, max_dest_rd_atomic;
    uint64_t rnr_ns, timeout_ns;
    uint32_t retry_cnt, rnr_retry, qkey;
};

/* Completion of the last request in a slot; `index` is its own in the completion queue, plus 1. */
struct reported {
    uint32_t index;
    int there;
};

enum { NOT_WAITING, FOR_PEER, FOR_RECEIVE, FOR_POLL };

struct qp {
    struct client *client;
    struct qp *next; /* of the client */
    struct qp *queue_next; /* in `active` or `stalled` */
    int is_active, is_stalled;
    uint64_t tag;
    uint32_t number, pd, max_send_wr, max_send_sge, max_inline;
    uint32_t payload_max; /* of a UD QP; 0: RC */
    struct cq *send_cq, *recv_cq;
    struct receives own, *receives; /* the latter: its own or those of an SRQ */
    struct ring sends;
    struct reported *reported; /* for each slot of `sends` */
    struct attributes attr;
    struct host *peer_host;
    uint32_t send_psn, expected_psn;
    int error, draining, notify_drained, heard, last_wqe;
    int send_error; /* SQE */
    int busy; /* `now` is the oldest request, and begun */
    struct request now;
    int waiting; /* for what, and until when */
    uint64_t deadline;
    int taken; /* `receive` is consumed by a message of the peer that is not complete */
    uint64_t receive_wr_id;
    enum ibv_wc_status of_receive; /* its status if the QP enters ERR */
    struct parts receive;
};

/* ring.c: shared rings. Counts are UINT32_MAX after a violation. */
void violated(struct client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ended(struct region *region);
void notice(struct fabric *fabric, uint64_t tag, uint32_t kind, uint32_t event);
uint32_t ring_filled(const struct ring *ring, struct client *client);
const void *ring_slot(const struct ring *ring, uint32_t number);
void ring_took(struct ring *ring);
void push(struct cq *cq, const struct weft_wc_slot *wc, int solicited);
int take_send(struct qp *qp, struct request *r);
int continues(const struct qp *qp, const struct request *r, uint32_t ahead);
uint32_t look_at_receive(struct receives *receives, uint64_t *wr_id, struct parts *parts);
void took_receive(struct receives *receives, uint32_t filled);
int take_receive(struct receives *receives, uint64_t *wr_id, struct parts *parts);
void report_news(struct client *client);

/* memory.c */
struct region *region_at(struct host *host, int local, uint32_t pd, uint64_t va, uint64_t length, uint32_t key,
                         uint32_t need);
int parts_allowed(struct host *host, uint32_t pd, const struct parts *parts, uint64_t length, uint32_t need);
enum access { DONE, DENIED, FAULT };
enum access copy_range(struct region *region, uint64_t va, const void *data, size_t length, int writes);
enum access copy_list(struct host *host, uint32_t pd, const struct parts *parts, uint64_t at, const void *data,
                      size_t length, int writes);

/* execute.c */
enum turn { IDLE, AGAIN, STALLED };
enum turn execute(struct qp *qp, size_t *budget);
int fail(struct qp *qp, enum ibv_wc_status status);
void enter_error(struct qp *qp);
enum turn flush(struct qp *qp);
void drained(struct qp *qp);
const uint8_t *read_ahead(struct qp *qp, const struct request *r);

/* datagram.c */
void weft_direct_qp_leave(struct qp *qp, uint32_t group);
enum ibv_wc_status send_datagram(struct qp *qp, struct request *r);

/* loop.c */
uint64_t now_ns(void);
void activate(struct qp *qp);
void leave(struct qp *qp);
void *run(void *fabric);
