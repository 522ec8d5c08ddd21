/* Conversion of the kernel's structures, which librdmacm gets from the `rdma_cm` device, to those of the verbs. */
#include "weft.h"

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

PUBLIC void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, struct ib_uverbs_ah_attr *from) {
    *to = (struct ibv_ah_attr){
        .grh = { .flow_label = from->grh.flow_label, .sgid_index = from->grh.sgid_index,
                 .hop_limit = from->grh.hop_limit, .traffic_class = from->grh.traffic_class },
        .dlid = from->dlid, .sl = from->sl, .src_path_bits = from->src_path_bits, .static_rate = from->static_rate,
        .is_global = from->is_global, .port_num = from->port_num };
    memcpy(to->grh.dgid.raw, from->grh.dgid, sizeof to->grh.dgid);
}

/* `qp_state` keeps the value that the program has set. */
PUBLIC void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, struct ib_uverbs_qp_attr *from) {
#define SAME(name) to->name = from->name
    SAME(cur_qp_state), SAME(path_mtu), SAME(path_mig_state), SAME(qkey), SAME(rq_psn), SAME(sq_psn);
    SAME(dest_qp_num), SAME(qp_access_flags), SAME(pkey_index), SAME(alt_pkey_index), SAME(en_sqd_async_notify);
    SAME(sq_draining), SAME(max_rd_atomic), SAME(max_dest_rd_atomic), SAME(min_rnr_timer), SAME(port_num);
    SAME(timeout), SAME(retry_cnt), SAME(rnr_retry), SAME(alt_port_num), SAME(alt_timeout);
#undef SAME
    to->cap = (struct ibv_qp_cap){ from->max_send_wr, from->max_recv_wr, from->max_send_sge, from->max_recv_sge,
                                   from->max_inline_data };
    ibv_copy_ah_attr_from_kern(&to->ah_attr, &from->ah_attr);
    ibv_copy_ah_attr_from_kern(&to->alt_ah_attr, &from->alt_ah_attr);
}

#define SAME(name) to->name = from->name
#define SAME_PATH \
    memcpy(&to->dgid, &from->dgid, sizeof to->dgid); \
    memcpy(&to->sgid, &from->sgid, sizeof to->sgid); \
    SAME(dlid), SAME(slid), SAME(raw_traffic), SAME(flow_label), SAME(hop_limit), SAME(traffic_class); \
    SAME(reversible), SAME(numb_path), SAME(pkey), SAME(sl), SAME(mtu_selector), SAME(mtu), SAME(rate_selector); \
    SAME(rate), SAME(packet_life_time), SAME(preference), SAME(packet_life_time_selector)

PUBLIC void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, struct ib_user_path_rec *from) { SAME_PATH; }

PUBLIC void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, struct ibv_sa_path_rec *from) { SAME_PATH; }
