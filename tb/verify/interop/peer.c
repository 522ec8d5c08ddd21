// Peer program of the guest: executes orders from standard input with the verbs, and answers each with a line that
// begins with "= ".
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE (1 << 20)
#define RECEIVE 4096      // bytes of a receive, and of its slot at the end of the memory
#define RECEIVES 32

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static unsigned char *memory;
static int gid_index = -1;

static void say(const char *format, ...) {
  va_list values;
  va_start(values, format);
  printf("\n= ");
  vprintf(format, values);
  printf("\n");
  fflush(stdout);
  va_end(values);
}

static int start(void) {
  int count;
  struct ibv_device **devices = ibv_get_device_list(&count);
  if (!count || !(context = ibv_open_device(devices[0])) || !(pd = ibv_alloc_pd(context))) return 1;
  memory = aligned_alloc(4096, SIZE);
  memset(memory, 0, SIZE);
  mr = ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                  IBV_ACCESS_REMOTE_ATOMIC);
  cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
  for (int i = 0; i < 8; i++) {
    union ibv_gid gid;
    if (!ibv_query_gid(context, 1, i, &gid) && gid.raw[10] == 0xff && gid.raw[11] == 0xff && gid.raw[12] == 10)
      if (gid_index < 0) gid_index = i;
  }
  return !mr || !cq || gid_index < 0;
}

static struct ibv_wc kept[2][64];     // completions not requested yet: of requests, of receives
static int count[2];

// Create a new QP, and destroy the old one if there is one.
static void open_qp(void) {
  struct ibv_wc wc;
  if (qp) ibv_destroy_qp(qp);
  while (ibv_poll_cq(cq, 1, &wc) > 0) {}
  count[0] = count[1] = 0;
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
    .cap = {.max_send_wr = 64, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE};
  qp = ibv_create_qp(pd, &init);
  if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    say("failed open");
  else
    say("%u %u %lu", qp->qp_num, mr->rkey, (unsigned long)memory);
}

static void connect_qp(unsigned qpn, unsigned psn, unsigned own_psn, int mtu, int timeout, unsigned ip) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = qpn, .rq_psn = psn,
    .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index, .hop_limit = 64}}};
  unsigned char *gid = attr.ah_attr.grh.dgid.raw;
  gid[10] = gid[11] = 0xff;
  ip = htonl(ip);
  memcpy(gid + 12, &ip, 4);
  int failed = 1;
  // The kernel resolves the peer's address once, with a time-out of one second: request or response may be lost.
  for (int tries = 0; failed && tries < 5; tries++)
    failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 7, .rnr_retry = 7,
    .sq_psn = own_psn, .max_rd_atomic = 4};
  if (!failed)
    failed = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  say(failed ? "failed connect" : "connected");
}

static unsigned receive_at(unsigned number) { return SIZE - RECEIVE * (1 + number % RECEIVES); }

static void post_receive(unsigned number) {
  struct ibv_sge sge = {(uint64_t)memory + receive_at(number), RECEIVE, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;
  say(ibv_post_recv(qp, &wr, &bad) ? "failed receive" : "posted");
}

static int post(int opcode, unsigned at, unsigned length, uint64_t address, unsigned key, uint64_t a, uint64_t b) {
  struct ibv_sge sge = {(uint64_t)memory + at, length, mr->lkey};
  struct ibv_send_wr wr = {.wr_id = at, .sg_list = &sge, .num_sge = length ? 1 : 0, .opcode = opcode,
    .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl((unsigned)a)}, *bad;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic.remote_addr = address; wr.wr.atomic.rkey = key;
    wr.wr.atomic.compare_add = a; wr.wr.atomic.swap = b;
  } else {
    wr.wr.rdma.remote_addr = address; wr.wr.rdma.rkey = key;
  }
  return ibv_post_send(qp, &wr, &bad);
}

// Answer with the status of the next completion of a receive or of a request, or "late" after the given seconds.
static void wait_for(int receive, int seconds) {
  time_t end = time(NULL) + seconds;
  while (!count[receive] && time(NULL) < end) {
    struct ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc) > 0) {
      int of = (wc.opcode & IBV_WC_RECV) != 0;
      if (count[of] < 64) kept[of][count[of]++] = wc;
    }
  }
  if (!count[receive]) { say("late"); return; }
  struct ibv_wc wc = kept[receive][0];
  memmove(kept[receive], kept[receive] + 1, sizeof wc * --count[receive]);
  say("%s %lu %u %d %x", ibv_wc_status_str(wc.status), (unsigned long)wc.wr_id, wc.byte_len, wc.wc_flags,
      wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0);
}

static unsigned crc(unsigned at, unsigned length) {
  unsigned value = ~0u;
  while (length--) {
    value ^= memory[at++];
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
  }
  return ~value;
}

static void fill(unsigned at, unsigned length, unsigned seed) {
  for (unsigned i = 0; i < length; i++) memory[at + i] = (i * 2654435761u + seed) >> 13;
  say("filled");
}

// Answer with a counter of rxe.
static void counter(const char *name) {
  char path[128];
  unsigned long value;
  snprintf(path, sizeof path, "/sys/class/infiniband/rxe0/ports/1/hw_counters/%s", name);
  FILE *file = fopen(path, "r");
  if (!file || fscanf(file, "%lu", &value) != 1) say("failed counter %s", name); else say("%lu", value);
  if (file) fclose(file);
}

int main(void) {
  char line[512], word[48];
  unsigned u[6];
  int opcode;
  uint64_t address, a, b;
  if (start()) say("failed start"); else say("ready");
  while (fgets(line, sizeof line, stdin)) {
    if (!strncmp(line, "open", 4)) open_qp();
    else if (sscanf(line, "connect %u %u %u %u %u %u", u, u + 1, u + 2, u + 3, u + 4, u + 5) == 6)
      connect_qp(u[0], u[1], u[2], u[3], u[4], u[5]);
    else if (sscanf(line, "receive %u", u) == 1) post_receive(u[0]);
    else if (sscanf(line, "post %d %u %u %lu %u %lu %lu", &opcode, u, u + 1, &address, u + 2, &a, &b) == 7)
      say(post(opcode, u[0], u[1], address, u[2], a, b) ? "failed post" : "posted");
    else if (sscanf(line, "sent %u", u) == 1) wait_for(0, u[0]);
    else if (sscanf(line, "received %u", u) == 1) wait_for(1, u[0]);
    else if (sscanf(line, "fill %u %u %u", u, u + 1, u + 2) == 3) fill(u[0], u[1], u[2]);
    else if (sscanf(line, "crc %u %u", u, u + 1) == 2) say("%u", crc(u[0], u[1]));
    else if (sscanf(line, "word %u", u) == 1) { memcpy(&a, memory + u[0], 8); say("%lu", a); }
    else if (sscanf(line, "counter %47s", word) == 1) counter(word);
    else if (!strncmp(line, "state", 5)) {
      struct ibv_qp_attr attr;
      struct ibv_qp_init_attr init;
      say("%d", ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) ? -1 : (int)attr.qp_state);
    } else if (!strncmp(line, "sh ", 3)) { int status = system(line + 3); say("status %d", status); }
    else if (!strncmp(line, "quit", 4)) break;
    else { sscanf(line, "%15s", word); say("unknown %s", word); }
  }
  return 0;
}
