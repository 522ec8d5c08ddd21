/* Address handles: routes that a program may hold. No queue pair uses them, because only RC is supported. */
#include "weft.h"

PUBLIC struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    struct ibv_ah *ah = NULL;
    if (!attr->is_global || attr->port_num != 1 || attr->grh.sgid_index) {
        weft_log("an address handle on Ethernet has a GRH, and port 1 and GID 0 are the only ones");
        errno = EINVAL;
    } else if ((ah = calloc(1, sizeof *ah))) {
        ah->context = pd->context;
        ah->pd = pd;
    }
    return ah;
}

PUBLIC int ibv_destroy_ah(struct ibv_ah *ah) {
    free(ah);
    return 0;
}
