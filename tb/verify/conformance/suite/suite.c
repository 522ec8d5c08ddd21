/* Conformance suite for a libibverbs device: `suite --device NAME [--peer NAME] [--peer-socket PATH] [--gid INDEX]
 * [--only TEXT]... [--list] [--json FILE] [--limit SECONDS]`.
 *
 * Each case is a process, so that neither a crash nor a hang ends the suite. A line for each case: verdict, name, and
 * the sentence and the rule if it does not pass. Exit status: 0, or 1 if a case failed, or 2 without a device. */
#include "suite.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CASES_MAX = 300, ONLY_MAX = 64, SENTENCE = 500, WAIT_S = 20, SOON_MS = 20, KILL_MS = 10000,
       LIMIT_MAX_S = 86400, GIDS_MAX = 255 };

static struct test {
    const char *name, *rule;
    char subject[40];
    void (*body)(void);
} tests[CASES_MAX];
static int count, result_file, onlys;
static const char *device, *peer_device, *peer_socket, *only[ONLY_MAX];
static int gid_index = -1, limit_s = 60;
static const char *const VERDICTS[] = { "PASS", "FAIL", "UNSUPPORTED" };

const struct how HOW = { IBV_MTU_1024, 18, 7, 7, 1, 4, 4, EVERYTHING, 100, 0 };

void add_case(const char *name, const char *file, const char *rule, void (*body)(void)) {
    if (count == CASES_MAX) abort();
    struct test *test = &tests[count++];
    const char *last = strrchr(file, '/');
    *test = (struct test){ .name = name, .rule = rule, .body = body };
    snprintf(test->subject, sizeof test->subject, "%s", last ? last + 1 : file);
    *strrchr(test->subject, '.') = 0;
}

void leave(enum verdict verdict, const char *format, ...) {
    char text[SENTENCE] = { (char)('0' + verdict) };
    va_list values;
    va_start(values, format);
    vsnprintf(text + 1, sizeof text - 1, format, values);
    va_end(values);
    _exit(write(result_file, text, strlen(text)) < 0);
}

/* ------------------------------------------------------------------------------------------------------------ ends */

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct ibv_context *open_device(const char *name) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    for (int i = 0; list && list[i] && !context; i++)
        if (!name || !strcmp(ibv_get_device_name(list[i]), name)) context = ibv_open_device(list[i]);
    if (list) ibv_free_device_list(list);
    return context;
}

/* Return the index of the GID that is an IPv4 address, of RoCEv2 if there is one, or else 0. */
static int find_gid(struct ibv_context *context, int length) {
    struct ibv_gid_entry entry;
    int found = 0;
    for (int i = length - 1; i >= 0; i--) {
        if (ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0)) continue;
        const unsigned char *raw = entry.gid.raw;
        if (!all(raw, 10, 0) || raw[10] != 0xFF || raw[11] != 0xFF) continue;
        if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return i;
        found = i;
    }
    return found;
}

static struct ibv_context *open_one(int second) {
    const char *own = getenv("WEFT_SOCKET");
    char *kept = own ? strdup(own) : NULL;
    if (second && peer_socket) setenv("WEFT_SOCKET", peer_socket, 1);
    struct ibv_context *context = open_device(second && peer_device ? peer_device : device);
    if (kept) setenv("WEFT_SOCKET", kept, 1);
    free(kept);
    return context;
}

struct end open_end(int second) {
    struct end e = { .context = open_one(second) };
    struct ibv_port_attr port;
    struct ibv_device_attr limits;
    NEED(e.context);
    NEED(!ibv_query_port(e.context, 1, &port) && !ibv_query_device(e.context, &limits));
    e.lid = port.lid;
    e.mtu = port.active_mtu;
    e.atomics = limits.atomic_cap != IBV_ATOMIC_NONE;
    e.gid_index = gid_index < 0 ? find_gid(e.context, port.gid_tbl_len) : gid_index;
    NEED(!ibv_query_gid(e.context, 1, e.gid_index, &e.gid));
    NEED(e.pd = ibv_alloc_pd(e.context));
    NEED(e.cq = ibv_create_cq(e.context, 4 * DEPTH, NULL, NULL, 0));
    NEED(fcntl(e.context->async_fd, F_SETFL, fcntl(e.context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
    e.memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(e.memory != MAP_FAILED);
    e.mr = ibv_reg_mr(e.pd, e.memory, MEMORY, EVERYTHING);
    LACKS(!e.mr && !e.atomics, "a region with REMOTE_ATOMIC: %s", strerror(errno));
    NEED(e.mr);
    return e;
}

struct pair ends(void) { return (struct pair){ .a = open_end(0), .b = open_end(1) }; }

struct ibv_qp_init_attr rc(const struct end *end) {
    return (struct ibv_qp_init_attr){ .send_cq = end->cq, .recv_cq = end->cq, .qp_type = IBV_QPT_RC,
        .cap = { DEPTH, DEPTH, SGES, SGES, 0 } };
}

struct ibv_qp *make_qp(struct end *end, struct ibv_qp_init_attr init) {
    uint32_t asked = init.cap.max_inline_data;
    struct ibv_qp *qp = ibv_create_qp(end->pd, &init);
    LACKS(!qp && errno == EOPNOTSUPP, "QPs of type %d", init.qp_type);
    LACKS(!qp && asked, "a QP with %u bytes of inline data: %s", asked, strerror(errno));
    NEED(qp);
    return qp;
}

void need_atomics(const struct pair *p) {
    LACKS(!p->a.atomics || !p->b.atomics, "ibv_query_device: atomic_cap is IBV_ATOMIC_NONE");
}

struct ibv_ah_attr to_end(const struct end *from, const struct end *to) {
    return (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .dlid = to->lid,
        .grh = { .dgid = to->gid, .hop_limit = 64, .sgid_index = (uint8_t)from->gid_index } };
}

int to_init(struct ibv_qp *qp, unsigned access) {
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct ibv_qp *qp, const struct end *own, const struct end *peer, uint32_t number, struct how how) {
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = how.mtu < own->mtu ? how.mtu : own->mtu,
        .dest_qp_num = number, .rq_psn = how.psn, .max_dest_rd_atomic = how.peer_reads, .min_rnr_timer = how.min_rnr,
        .ah_attr = to_end(own, peer) };
    attr.ah_attr.grh.flow_label = how.flow_label;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                                        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct ibv_qp *qp, struct how how) {
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .sq_psn = how.psn, .timeout = how.timeout,
        .retry_cnt = how.retry, .rnr_retry = how.rnr_retry, .max_rd_atomic = how.reads };
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
                                        | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int to_state(struct ibv_qp *qp, enum ibv_qp_state state) {
    return ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = state }, IBV_QP_STATE);
}

enum ibv_qp_state state_of(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    NEED(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    return attr.qp_state;
}

int fails(struct ibv_qp *qp) {
    double end = seconds() + WAIT_S;
    while (state_of(qp) != IBV_QPS_ERR)
        if (seconds() > end) return 0;
    return 1;
}

void join(struct end *a, struct ibv_qp *qp, struct end *b, struct ibv_qp *peer, struct how how) {
    NEED(!to_init(qp, how.access) && !to_init(peer, how.access));
    NEED(!to_rtr(qp, a, b, peer->qp_num, how) && !to_rtr(peer, b, a, qp->qp_num, how));
    NEED(!to_rts(qp, how) && !to_rts(peer, how));
}

struct pair connected_by(struct how how, void (*change)(struct ibv_qp_init_attr *), int which) {
    struct pair p = ends();
    struct ibv_qp_init_attr first = rc(&p.a), second = rc(&p.b);
    if (which & OF_A) change(&first);
    if (which & OF_B) change(&second);
    p.qp = make_qp(&p.a, first);
    p.peer = make_qp(&p.b, second);
    join(&p.a, p.qp, &p.b, p.peer, how);
    return p;
}

struct pair connected(struct how how) { return connected_by(how, NULL, 0); }

/* -------------------------------------------------------------------------------------------------------- requests */

struct ibv_sge part(const struct end *end, size_t at, size_t length) {
    return (struct ibv_sge){ (uintptr_t)end->memory + at, (uint32_t)length, end->mr->lkey };
}

struct ibv_send_wr request(enum ibv_wr_opcode opcode, const struct pair *p, struct ibv_sge *sges, int number,
                           uint64_t id) {
    struct ibv_send_wr wr = { .wr_id = id, .sg_list = sges, .num_sge = number, .opcode = opcode,
                              .send_flags = IBV_SEND_SIGNALED };
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = (uintptr_t)p->b.memory;
        wr.wr.atomic.rkey = p->b.mr->rkey;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)p->b.memory;
        wr.wr.rdma.rkey = p->b.mr->rkey;
    }
    return wr;
}

struct ibv_send_wr write_of(const struct pair *p, struct ibv_sge *sge, uint64_t id, unsigned flags) {
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, p, sge, sge ? 1 : 0, id);
    wr.send_flags = flags;
    return wr;
}

int post(struct ibv_qp *qp, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(qp, wr, &bad);
    CHECK(!error || bad, "ibv_post_send fails (%s) and sets no bad_wr", strerror(error));
    return error;
}

int give(struct ibv_qp *qp, struct ibv_sge *sges, int number, uint64_t id) {
    struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = sges, .num_sge = number };
    return ibv_post_recv(qp, &wr, &bad);
}

struct ibv_wc done(struct ibv_cq *cq) {
    struct ibv_wc wc;
    double end = seconds() + WAIT_S;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, &wc)) && seconds() < end) {}
    CHECK(n >= 0, "ibv_poll_cq returns %d", n);
    CHECK(n == 1, "no completion after %d s", WAIT_S);
    return wc;
}

void succeeds(struct ibv_cq *cq, uint64_t id) {
    struct ibv_wc wc = done(cq);
    CHECK(wc.status == IBV_WC_SUCCESS, "request %lu completes with '%s'", (unsigned long)wc.wr_id,
          ibv_wc_status_str(wc.status));
    CHECK(wc.wr_id == id, "the completion has wr_id %lu instead of %lu", (unsigned long)wc.wr_id, (unsigned long)id);
}

void nothing(struct ibv_cq *cq, const char *why) {
    struct ibv_wc wc;
    int n = ibv_poll_cq(cq, 1, &wc);
    CHECK(!n, "%s: a completion of request %lu with '%s'", why, (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
}

void settle(struct pair *p) {
    struct ibv_cq *first = ibv_create_cq(p->a.context, DEPTH, NULL, NULL, 0);
    struct ibv_cq *second = ibv_create_cq(p->b.context, DEPTH, NULL, NULL, 0);
    NEED(first && second);
    struct ibv_qp_init_attr near = rc(&p->a), far = rc(&p->b);
    near.send_cq = near.recv_cq = first;
    far.send_cq = far.recv_cq = second;
    struct ibv_qp *qp = make_qp(&p->a, near), *peer = make_qp(&p->b, far);
    join(&p->a, qp, &p->b, peer, HOW);
    struct ibv_send_wr wr = { .wr_id = 900, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
    NEED(!give(qp, NULL, 0, 901) && !give(peer, NULL, 0, 902));
    NEED(!post(qp, &wr));
    succeeds(second, 902);
    NEED(!post(peer, &wr));
    for (uint64_t ids = 0; ids != 900 + 901;) { /* of two work queues: in any order */
        struct ibv_wc wc = done(first);
        STATUS(wc, IBV_WC_SUCCESS);
        ids += wc.wr_id;
    }
    succeeds(second, 900);
    NEED(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_destroy_cq(first) && !ibv_destroy_cq(second));
}

/* ---------------------------------------------------------------------------------------------------------- events */

void *event_of(struct end *end, enum ibv_event_type type) {
    struct pollfd file = { .fd = end->context->async_fd, .events = POLLIN };
    struct ibv_async_event event;
    while (poll(&file, 1, WAIT_S * 1000) == 1) {
        if (ibv_get_async_event(end->context, &event)) continue;
        ibv_ack_async_event(&event);
        if (event.event_type == type) return event.element.cq; /* a union of pointers */
    }
    return NULL;
}

int no_event(struct end *end) {
    struct pollfd file = { .fd = end->context->async_fd, .events = POLLIN };
    return poll(&file, 1, SOON_MS) == 0;
}

/* ---------------------------------------------------------------------------------------------------------- memory */

static unsigned char byte_at(size_t i, unsigned seed) { return (unsigned char)((i * 31) ^ (i >> 7) ^ seed); }

void fill(unsigned char *memory, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++) memory[i] = byte_at(i, seed);
}

int filled(const unsigned char *memory, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        if (memory[i] != byte_at(i, seed)) return 0;
    return 1;
}

int all(const unsigned char *memory, size_t length, unsigned char value) {
    for (size_t i = 0; i < length; i++)
        if (memory[i] != value) return 0;
    return 1;
}

/* --------------------------------------------------------------------------------------------------------- command */

/* Wait until a process is over, and kill it if it does not end; return 0 if the device holds it even then. */
static int reap(pid_t child, int *status) {
    for (int waited = 0; waited < 2 * KILL_MS; waited++) {
        pid_t over = waitpid(child, status, WNOHANG);
        if (over) return over == child;
        if (waited == KILL_MS) kill(child, SIGKILL);
        poll(NULL, 0, 1);
    }
    return 0;
}

/* Run a case in a process; return its verdict, and put its sentence into `text`. */
static enum verdict run(const struct test *test, char text[SENTENCE]) {
    int pipes[2], status = 0;
    pid_t child = -1, suite = getpid();
    fflush(NULL);
    if (pipe(pipes) || (child = fork()) < 0) {
        snprintf(text, SENTENCE, "no process can be made: %s", strerror(errno));
        return FAIL;
    }
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != suite) _exit(1);
        close(pipes[0]);
        result_file = pipes[1];
        test->body();
        leave(PASS, "%s", "");
    }
    close(pipes[1]);
    struct pollfd file = { .fd = pipes[0], .events = POLLIN };
    int ready = poll(&file, 1, limit_s * 1000);
    ssize_t length = ready == 1 ? read(pipes[0], text, SENTENCE - 1) : 0;
    if (ready != 1) kill(child, SIGKILL);
    close(pipes[0]);
    if (!reap(child, &status)) {
        snprintf(text, SENTENCE, "its process does not end, not even killed");
        return FAIL;
    }
    if (length < 1) {
        if (ready != 1) snprintf(text, SENTENCE, "it has not ended after %d s", limit_s);
        else if (WIFSIGNALED(status)) snprintf(text, SENTENCE, "signal %d ends it", WTERMSIG(status));
        else snprintf(text, SENTENCE, "it ends without a verdict");
        return FAIL;
    }
    text[length] = 0;
    enum verdict verdict = (enum verdict)(text[0] - '0');
    memmove(text, text + 1, (size_t)length);
    return verdict;
}

static void quoted(FILE *file, const char *text) {
    putc('"', file);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putc('\\', file);
        if ((unsigned char)*text >= ' ') putc(*text, file);
    }
    putc('"', file);
}

static void write_json(FILE *file, int first, const struct test *test, enum verdict verdict, const char *text,
                       double took) {
    const char *const keys[] = { "case", "subject", "status", "sentence", "rule" };
    const char *const values[] = { test->name, test->subject, VERDICTS[verdict], text, test->rule };
    fputs(first ? "[\n {" : ",\n {", file);
    for (int i = 0; i < 5; i++) {
        quoted(file, keys[i]);
        fputs(": ", file);
        quoted(file, values[i]);
        fputs(", ", file);
    }
    fprintf(file, "\"seconds\": %.3f}", took);
}

static int wanted(const struct test *test) {
    for (int i = 0; i < onlys; i++)
        if (strstr(test->name, only[i]) || !strcmp(test->subject, only[i])) return 1;
    return !onlys;
}

static int usage(const char *why) {
    fprintf(stderr, "conformance: %s\n", why);
    return 2;
}

static int run_all(FILE *json) {
    int totals[3] = { 0 };
    for (int i = 0; i < count; i++) {
        char text[SENTENCE] = "";
        if (!wanted(&tests[i])) continue;
        double begun = seconds();
        enum verdict verdict = run(&tests[i], text);
        printf("%-11s  %s", VERDICTS[verdict], tests[i].name);
        if (verdict != PASS) printf(": %s  [%s]", text, tests[i].rule);
        puts("");
        if (json) write_json(json, totals[0] + totals[1] + totals[2] == 0, &tests[i], verdict, text, seconds() - begun);
        totals[verdict]++;
    }
    if (json) fputs(totals[0] + totals[1] + totals[2] ? "\n]\n" : "[]\n", json);
    printf("%d passed, %d failed, %d unsupported\n", totals[PASS], totals[FAIL], totals[UNSUPPORTED]);
    if (!(totals[PASS] + totals[FAIL] + totals[UNSUPPORTED])) return usage("no case has a name or subject like --only");
    return totals[FAIL] != 0;
}

/* List the cases as tab-separated subject, name and rule. */
static int list(void) {
    for (int i = 0; i < count; i++)
        if (wanted(&tests[i])) printf("%s\t%s\t%s\n", tests[i].subject, tests[i].name, tests[i].rule);
    return 0;
}

/* Read a decimal number from 0 to `most`; return -1 if the text is not one. */
static int number_of(const char *text, long most) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return *text && !*end && !errno && value >= 0 && value <= most ? (int)value : -1;
}

/* Return why the suite cannot run on the device, or that of the peer, or NULL. */
static const char *obstacle(int second) {
    struct ibv_port_attr port;
    struct ibv_context *context = open_one(second);
    if (!context) return second ? "the device of --peer cannot be opened"
                       : device ? "no device of that name can be opened" : "no RDMA device can be opened";
    int iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
    int active = !ibv_query_port(context, 1, &port) && port.state == IBV_PORT_ACTIVE;
    ibv_close_device(context);
    if (iwarp) return "a device of iWARP connects by rdma_cm only, and the suite connects QPs by ibv_modify_qp";
    return active ? NULL : "port 1 of the device is not active; connect it, or use another device";
}

int main(int argc, char **argv) {
    const char *json_path = NULL, *why;
    int listed = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--list")) {
            listed = 1;
            continue;
        }
        if (!value) return usage("an option has no value");
        if (!strcmp(argv[i], "--device")) device = value;
        else if (!strcmp(argv[i], "--peer")) peer_device = value;
        else if (!strcmp(argv[i], "--peer-socket")) peer_socket = value;
        else if (!strcmp(argv[i], "--gid")) gid_index = number_of(value, GIDS_MAX);
        else if (!strcmp(argv[i], "--json")) json_path = value;
        else if (!strcmp(argv[i], "--limit")) limit_s = number_of(value, LIMIT_MAX_S);
        else if (!strcmp(argv[i], "--only") && onlys < ONLY_MAX) only[onlys++] = value;
        else return usage("an option is unknown");
        if (!strcmp(argv[i], "--gid") && gid_index < 0) return usage("--gid is an index from 0 to 255");
        if (limit_s < 1) return usage("--limit is a number of seconds from 1 to 86400");
        i++;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (listed) return list();
    if ((why = obstacle(0)) || (why = obstacle(1))) return usage(why);
    FILE *json = json_path ? fopen(json_path, "w") : NULL;
    if (json_path && !json) return usage("the file for JSON cannot be written");
    int failed = run_all(json);
    if (json && fclose(json)) return usage("the file for JSON cannot be written");
    return failed;
}
