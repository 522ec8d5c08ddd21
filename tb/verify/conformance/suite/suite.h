/* Conformance suite for a libibverbs device: the functions that every case uses.
 *
 * A case runs in a process with two ends, `a` that requests and `b` that responds. Its first failed check ends it. */
#pragma once
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 128 << 10, PAGE = 4096, MTU = 1024, DEPTH = 64, SGES = 4 };
enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
                    | IBV_ACCESS_REMOTE_ATOMIC };
enum verdict { PASS, FAIL, UNSUPPORTED };

/* Define a case: its name, the rule that it stands for, and its body. */
#define CASE(id, rule)                                                                            \
    static void id(void);                                                                         \
    __attribute__((constructor)) static void add_##id(void) { add_case(#id, __FILE__, rule, id); } \
    static void id(void)

void add_case(const char *name, const char *file, const char *rule, void (*body)(void));

/* End the case with a verdict and a sentence. */
_Noreturn void leave(enum verdict verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define HERE_IS (strrchr("/" __FILE__, '/') + 1)
#define CHECK(condition, ...) do { if (!(condition)) leave(FAIL, __VA_ARGS__); } while (0)
#define NEED(condition) CHECK(condition, "%s fails: %s (%s:%d)", #condition, strerror(errno), HERE_IS, __LINE__)
#define LACKS(condition, ...) do { if (condition) leave(UNSUPPORTED, __VA_ARGS__); } while (0)
/* Check the status of a completion. */
#define STATUS(wc, expected) do { struct ibv_wc *is_ = &(wc); CHECK(is_->status == (expected), \
    "request %lu completes with '%s' instead of '%s' (%s:%d)", (unsigned long)is_->wr_id, \
    ibv_wc_status_str(is_->status), ibv_wc_status_str(expected), HERE_IS, __LINE__); } while (0)

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    union ibv_gid gid;
    int gid_index;
    uint16_t lid;
    enum ibv_mtu mtu;           /* active one */
    int atomics;                /* whether the device has them */
    unsigned char *memory;      /* MEMORY bytes, registered with EVERYTHING */
    struct ibv_mr *mr;
};

/* Attributes of a connection. */
struct how {
    enum ibv_mtu mtu;
    uint8_t timeout, retry, rnr_retry, min_rnr, reads, peer_reads;
    unsigned access;
    uint32_t psn, flow_label;
};

struct pair {
    struct end a, b;
    struct ibv_qp *qp, *peer;
};

extern const struct how HOW;

struct end open_end(int second);                    /* the device, or if `second` the peer's */
struct ibv_qp_init_attr rc(const struct end *end);  /* of a QP with capacities DEPTH and SGES, without inline data */
/* The case is UNSUPPORTED if the device has no such QPs, or not the inline data. */
struct ibv_qp *make_qp(struct end *end, struct ibv_qp_init_attr init);
void need_atomics(const struct pair *p);            /* the case is UNSUPPORTED without them */
struct ibv_ah_attr to_end(const struct end *from, const struct end *to);
int to_init(struct ibv_qp *qp, unsigned access);
int to_rtr(struct ibv_qp *qp, const struct end *own, const struct end *peer, uint32_t number, struct how how);
int to_rts(struct ibv_qp *qp, struct how how);
int to_state(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state state_of(struct ibv_qp *qp);
int fails(struct ibv_qp *qp);                       /* wait until the QP is in ERR; return 0 if it never is */
void join(struct end *a, struct ibv_qp *qp, struct end *b, struct ibv_qp *peer, struct how how);
struct pair ends(void);                             /* two ends without QPs */
struct pair connected(struct how how);
struct pair connected_by(struct how how, void (*change)(struct ibv_qp_init_attr *), int which);
enum { OF_A = 1, OF_B = 2 };

struct ibv_sge part(const struct end *end, size_t at, size_t length);
/* A signaled request from the start of `a`'s memory to that of `b`. */
struct ibv_send_wr request(enum ibv_wr_opcode opcode, const struct pair *p, struct ibv_sge *sges, int count,
                           uint64_t id);
int post(struct ibv_qp *qp, struct ibv_send_wr *wr);
int give(struct ibv_qp *qp, struct ibv_sge *sges, int count, uint64_t id);
struct ibv_wc done(struct ibv_cq *cq);              /* the next completion, which must come */
void succeeds(struct ibv_cq *cq, uint64_t id);      /* the next completion is that of `id`, and successful */
void nothing(struct ibv_cq *cq, const char *why);   /* there is no completion */
struct ibv_send_wr write_of(const struct pair *p, struct ibv_sge *sge, uint64_t id, unsigned flags);
void settle(struct pair *p);                        /* a further connection carries a message both ways */
/* Wait for an event; return the CQ, QP or SRQ that it names, or NULL if it does not come. */
void *event_of(struct end *end, enum ibv_event_type type);
int no_event(struct end *end);
void fill(unsigned char *memory, size_t length, unsigned seed);
int filled(const unsigned char *memory, size_t length, unsigned seed);
int all(const unsigned char *memory, size_t length, unsigned char value);
