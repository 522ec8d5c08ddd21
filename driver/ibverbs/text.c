/* Texts of enumerations, and conversion of rates. */
#include "weft.h"

#define WORD(table, value) ((size_t)(value) < sizeof table / sizeof *table && table[value] ? table[value] : "unknown")

PUBLIC const char *ibv_node_type_str(enum ibv_node_type type) {
    static const char *const words[] = { [IBV_NODE_CA] = "InfiniBand channel adapter", [IBV_NODE_SWITCH] =
        "InfiniBand switch", [IBV_NODE_ROUTER] = "InfiniBand router", [IBV_NODE_RNIC] = "iWARP NIC",
        [IBV_NODE_USNIC] = "usNIC", [IBV_NODE_USNIC_UDP] = "usNIC UDP", [IBV_NODE_UNSPECIFIED] = "unspecified" };
    return type < 0 ? "unknown" : WORD(words, type);
}

PUBLIC const char *ibv_port_state_str(enum ibv_port_state state) {
    static const char *const words[] = { "no state change (NOP)", "down", "init", "armed", "active", "active defer" };
    return state < 0 ? "unknown" : WORD(words, state);
}

PUBLIC const char *ibv_event_type_str(enum ibv_event_type event) {
    static const char *const words[] = {
        "CQ error", "local work queue catastrophic error", "invalid request local work queue error",
        "local access violation work queue error", "communication established", "send queue drained",
        "path migrated", "path migration request error", "local catastrophic error", "port active", "port error",
        "LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached",
        "last WQE reached", "client reregistration", "GID table change", "WQ fatal" };
    return event < 0 ? "unknown" : WORD(words, event);
}

PUBLIC const char *ibv_wc_status_str(enum ibv_wc_status status) {
    static const char *const words[] = {
        "success", "local length error", "local QP operation error", "local EE context operation error",
        "local protection error", "Work Request Flushed Error", "memory management operation error",
        "bad response error", "local access error", "remote invalid request error", "remote access error",
        "remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
        "local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
        "invalid EE context state", "fatal error", "response timeout error", "general error", "TM error",
        "TM software rendezvous" };
    return status < 0 ? "unknown" : WORD(words, status);
}

static const struct {
    enum ibv_rate rate;
    int mult, mbps;
} rates[] = {
    { IBV_RATE_2_5_GBPS, 1, 2500 }, { IBV_RATE_5_GBPS, 2, 5000 }, { IBV_RATE_10_GBPS, 4, 10000 },
    { IBV_RATE_20_GBPS, 8, 20000 }, { IBV_RATE_30_GBPS, 12, 30000 }, { IBV_RATE_40_GBPS, 16, 40000 },
    { IBV_RATE_60_GBPS, 24, 60000 }, { IBV_RATE_80_GBPS, 32, 80000 }, { IBV_RATE_120_GBPS, 48, 120000 },
    { IBV_RATE_14_GBPS, 6, 14062 }, { IBV_RATE_56_GBPS, 22, 56250 }, { IBV_RATE_112_GBPS, 45, 112500 },
    { IBV_RATE_168_GBPS, 67, 168750 }, { IBV_RATE_25_GBPS, 10, 25781 }, { IBV_RATE_100_GBPS, 41, 103125 },
    { IBV_RATE_200_GBPS, 82, 206250 }, { IBV_RATE_300_GBPS, 124, 309375 }, { IBV_RATE_28_GBPS, 11, 28125 },
    { IBV_RATE_50_GBPS, 20, 53125 }, { IBV_RATE_400_GBPS, 160, 425000 }, { IBV_RATE_600_GBPS, 240, 637500 } };

#define FOR_RATE(i) for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)

PUBLIC int ibv_rate_to_mult(enum ibv_rate rate) {
    FOR_RATE(i) if (rates[i].rate == rate) return rates[i].mult;
    return -1;
}

PUBLIC enum ibv_rate mult_to_ibv_rate(int mult) {
    FOR_RATE(i) if (rates[i].mult == mult) return rates[i].rate;
    return IBV_RATE_MAX;
}

PUBLIC int ibv_rate_to_mbps(enum ibv_rate rate) {
    FOR_RATE(i) if (rates[i].rate == rate) return rates[i].mbps;
    return -1;
}

PUBLIC enum ibv_rate mbps_to_ibv_rate(int mbps) {
    FOR_RATE(i) if (rates[i].mbps == mbps) return rates[i].rate;
    return IBV_RATE_MAX;
}
