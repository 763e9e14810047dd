/* The least work of a warm through an S3 server, to see what a budget leaves for everything else: ranges of objects are
 * fetched, cut into files of 5 to 95 KB, each created, written, given its time and linked to a second name, and all is
 * flushed, meanwhile and at the end. No cipher, no hash, no manifest, no interpreter. docs/performance.md says how to
 * run it.
 *
 *     least PORT OBJECTS OBJECT_BYTES TARGET THREADS
 *
 * Objects are named /bucket/0000 and so on, and the server lets anybody in. Exits 1 and names what failed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANGE = 16 << 20, HEADER = 60, ABREAST = 4, DIRECTORIES = 20, FLUSH_BYTES = 128 << 20 };

struct range { int object; long start, length; };

static int port, objects, object_dirs[256], view_dirs[DIRECTORIES];
static long object_bytes;
static struct range *ranges;
static int range_count, next_range, next_file;
static volatile long written, done;

static void fail(const char *what) { perror(what); exit(1); }

/* As datasync asks: ranges of 16 MiB behind the pack's header, those of four packs in turn. */
static void plan(void) {
    int halves = (object_bytes + RANGE - 1) / RANGE;
    ranges = malloc(sizeof *ranges * objects * halves);
    for (int first = 0; first < objects; first += ABREAST)
        for (int half = 0; half < halves; half++)
            for (int object = first; object < first + ABREAST && object < objects; object++) {
                long start = half ? (long)half * RANGE : HEADER, end = (half + 1L) * RANGE;
                if (end > object_bytes) end = object_bytes;
                ranges[range_count++] = (struct range){object, start, end - start};
            }
}

static int connected(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int connection = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(connection, (void *)&address, sizeof address)) fail("connect");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connection;
}

static void fetch(int connection, const struct range *range, char *buffer) {
    char head[4096], *end = NULL;
    int size = sprintf(head, "GET /bucket/%04d HTTP/1.1\r\nHost: s3\r\nRange: bytes=%ld-%ld\r\n\r\n", range->object,
                       range->start, range->start + range->length - 1);
    if (write(connection, head, size) != size) fail("send");
    for (size = 0; !end; end = strstr(head, "\r\n\r\n")) {
        int got = recv(connection, head + size, sizeof head - 1 - size, 0);
        if (got <= 0) fail("answer");
        head[size += got] = 0;
    }
    if (strncmp(head, "HTTP/1.1 20", 11)) { fprintf(stderr, "%.200s\n", head); exit(1); }
    long have = size - (end + 4 - head);
    memcpy(buffer, end + 4, have);
    for (long got; have < range->length; have += got)
        if ((got = recv(connection, buffer + have, range->length - have, MSG_WAITALL)) <= 0) fail("body");
}

static void place(const char *data, long size) {
    static const struct timespec times[2] = {{1700000000, 0}, {1700000000, 0}};
    int number = __sync_fetch_and_add(&next_file, 1);
    unsigned long id = (number + 1) * 0x9E3779B97F4A7C15ul;
    char object[80], name[32];
    sprintf(object, "%016lx%016lx%016lx%016lx", id, id * 3, id * 5, id * 7);
    sprintf(name, "file-%06d.bin", number);
    int parent = object_dirs[id >> 56], fd = openat(parent, object, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
    if (fd < 0 || write(fd, data, size) != size || futimens(fd, times)) fail(object);
    if (linkat(parent, object, view_dirs[number % DIRECTORIES], name, 0)) fail(name);
    close(fd);
    __sync_fetch_and_add(&written, size);
}

static void *flush(void *nothing) {
    for (long flushed = 0; !done; usleep(10000))
        if (written - flushed >= FLUSH_BYTES) {
            flushed = written;
            if (syncfs(object_dirs[0])) fail("flush");
        }
    if (syncfs(object_dirs[0])) fail("flush");
    return nothing;
}

static void *work(void *nothing) {
    char *buffer = mmap(NULL, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int connection = connected(), n;
    unsigned seed = 1 + (unsigned)pthread_self();
    madvise(buffer, RANGE, MADV_HUGEPAGE);
    while ((n = __sync_fetch_and_add(&next_range, 1)) < range_count) {
        fetch(connection, &ranges[n], buffer);
        for (long at = 0, size; at < ranges[n].length; at += size) {
            size = 5000 + rand_r(&seed) % 90000;
            if (size > ranges[n].length - at) size = ranges[n].length - at;
            place(buffer + at, size);
        }
    }
    return nothing;
}

static int directory(const char *path) {
    if (mkdir(path, 0755)) fail(path);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int main(int count, char **given) {
    char path[4096];
    if (count != 6) { fputs("usage: least PORT OBJECTS OBJECT_BYTES TARGET THREADS\n", stderr); return 2; }
    port = atoi(given[1]), objects = atoi(given[2]), object_bytes = atol(given[3]);
    int threads = atoi(given[5]);
    directory(given[4]);
    for (int n = 0; n < 256; n++) snprintf(path, sizeof path, "%s/%02x", given[4], n), object_dirs[n] = directory(path);
    for (int n = 0; n < DIRECTORIES; n++)
        snprintf(path, sizeof path, "%s/view-%02d", given[4], n), view_dirs[n] = directory(path);
    plan();
    pthread_t running[64], flushing;
    pthread_create(&flushing, NULL, flush, NULL);
    for (int n = 0; n < threads && n < 64; n++) pthread_create(&running[n], NULL, work, NULL);
    for (int n = 0; n < threads && n < 64; n++) pthread_join(running[n], NULL);
    done = 1;
    pthread_join(flushing, NULL);
    printf("%d files\n", next_file);
    return 0;
}
