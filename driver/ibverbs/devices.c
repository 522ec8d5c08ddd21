/* List of devices: the card of this host, if a daemon serves one. */
#include "weft.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device *devices; /* all devices ever found: a program may keep a pointer after it freed its list */

/* Connect to the daemon, and make the first call. */
int say_hello(struct context *c, struct weft_welcome *welcome, int files[4]) {
    c->socket = weft_connect(weft_path());
    if (c->socket < 0) {
        int error = errno;
        weft_log("no daemon at %s (%s): WEFT_SOCKET names its socket, `weft run` sets it", weft_path(), strerror(error));
        return error;
    }
    pthread_mutex_init(&c->lock, NULL);
    int error = weft_call(c, (struct call){ .opcode = WEFT_HELLO, .answer = welcome, .answer_size = sizeof *welcome,
                                            .files = files, .count = 4 });
    if (error) close(c->socket);
    return error;
}

static struct device *found(const struct weft_welcome *welcome) {
    struct device *d = devices;
    while (d && (d->guid != welcome->node_guid || d->index != (int)welcome->index)) d = d->next;
    if (d || !(d = calloc(1, sizeof *d))) return d;
    d->ibv.node_type = IBV_NODE_CA;
    d->ibv.transport_type = IBV_TRANSPORT_IB;
    snprintf(d->ibv.name, sizeof d->ibv.name, "%.*s", (int)sizeof d->ibv.name - 1, (const char *)welcome->name);
    snprintf(d->ibv.dev_name, sizeof d->ibv.dev_name, "uverbs%u", welcome->index);
    snprintf(d->ibv.dev_path, sizeof d->ibv.dev_path, "/sys/class/infiniband_verbs/%s", d->ibv.dev_name);
    snprintf(d->ibv.ibdev_path, sizeof d->ibv.ibdev_path, "/sys/class/infiniband/%.*s", 60, d->ibv.name);
    d->guid = welcome->node_guid;
    d->index = (int)welcome->index;
    d->next = devices;
    return devices = d;
}

PUBLIC struct ibv_device **ibv_get_device_list(int *count) {
    struct weft_welcome welcome;
    struct context c = { 0 };
    int files[4], n = 0;
    struct ibv_device **list = calloc(2, sizeof *list);
    if (!list) return NULL;
    if (!say_hello(&c, &welcome, files)) {
        close(c.socket);
        for (int i = 0; i < 4; i++) close(files[i]);
        pthread_mutex_lock(&lock);
        struct device *d = found(&welcome);
        pthread_mutex_unlock(&lock);
        if (d) list[n++] = &d->ibv;
    }
    if (count) *count = n;
    errno = 0;
    return list;
}

PUBLIC void ibv_free_device_list(struct ibv_device **list) { free(list); }

PUBLIC const char *ibv_get_device_name(struct ibv_device *device) { return device ? device->name : NULL; }

PUBLIC __be64 ibv_get_device_guid(struct ibv_device *device) {
    return htobe64(container(device, struct device, ibv)->guid);
}

PUBLIC int ibv_get_device_index(struct ibv_device *device) { return container(device, struct device, ibv)->index; }

PUBLIC const char *ibv_get_sysfs_path(void) { return "/sys"; }

/* The other library presents the files of the device. */
PUBLIC int ibv_read_sysfs_file(const char *folder, const char *name, char *text, size_t size) {
    char path[PATH_MAX];
    int file = snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return -1;
    ssize_t n = read(file, text, size);
    close(file);
    if (n > 0 && text[n - 1] == '\n') text[--n] = 0;
    else if (n > 0 && (size_t)n < size) text[n] = 0;
    else if (n > 0) errno = EOVERFLOW, n = -1;
    return (int)n;
}
