/* What the kernel alone costs of a fetch: a server that knows one answer and looks at nothing.
 *
 *   bare path=FILE batch=BYTES megabytes=M seconds=S
 *
 * To each request it sends a head, the next BYTES of the file by `sendfile` and a tail, as a broker
 * does that finds them in the page cache. It is a process of its own, and `cpu_s` is what that has
 * taken. No broker that answers by `sendfile` can do more with a second of processor.
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "link.h"
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/wait.h>

enum { HEAD_BYTES = 71, TAIL_BYTES = 3, REQUEST_BYTES = 91 };

static const char *path;
static int64_t batch = 1 << 20, megabytes = 1000, seconds = 20, port;
static const struct argument arguments[] = {
    {"path", .text = &path},
    {"port", &port, 0, 65535},                   /* of a broker; not used */
    {"batch", &batch, 1, MAX_BATCH},
    {"megabytes", &megabytes, 1, 100000},
    {"seconds", &seconds, 1, 600},
    {NULL},
};

static void send_all(int to, const uint8_t *data, size_t size, int flags) {
  while (size) {
    ssize_t sent = send(to, data, size, flags | MSG_NOSIGNAL);
    if (sent < 0) fail("cannot send", errno);
    data += sent;
    size -= sent;
  }
}

static void serve(int listener) {
  int file = open(path, O_RDONLY), peer = accept(listener, NULL, NULL), on = 1;
  if (file < 0 || peer < 0) fail("cannot open", errno);
  setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int loop = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(loop, EPOLL_CTL_ADD, peer, &event);
  off_t end = lseek(file, 0, SEEK_END), at = 0;
  uint8_t request[4 + REQUEST_BYTES], head[4 + HEAD_BYTES] = {0};
  put(head, HEAD_BYTES + batch + TAIL_BYTES, 4);
  while (epoll_wait(loop, &event, 1, -1) == 1 && recv(peer, request, sizeof request, 0) > 0) {
    if (at + batch > end) at = 0;
    send_all(peer, head, sizeof head, MSG_MORE);
    for (size_t left = batch; left;) {
      ssize_t sent = sendfile(peer, file, &at, left);
      if (sent <= 0) fail("cannot send the file", errno);
      left -= sent;
    }
    send_all(peer, head + 4, TAIL_BYTES, 0);
  }
  exit(0);
}

static int64_t ask_for_all(struct link *link) {
  double start = now(), deadline = start + seconds, begun;
  int64_t done = 0;
  while (done * batch < megabytes * 1000000 && (begun = now()) < deadline) {
    ask(link, link->out + 4 + REQUEST_BYTES);
    note_sample(now() - begun);
    done++;
  }
  return done;
}

int main(int argc, char **argv) {
  (void)argc;
  parse(arguments, argv + 1);
  if (!path) fail("path= is missing", 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (void *)&address, size) || listen(listener, 1)) fail("cannot listen", errno);
  getsockname(listener, (void *)&address, &size);
  if (!fork()) serve(listener);
  close(listener);
  struct link link = link_open(ntohs(address.sin_port), 4 + REQUEST_BYTES, RECEIVE_BYTES);
  memset(link.out, 0, 4 + REQUEST_BYTES);
  double start = now();
  int64_t requests = ask_for_all(&link);
  double elapsed = now() - start;
  close(link.fd);
  struct rusage used;
  if (wait4(-1, NULL, 0, &used) < 0) fail("wait4", errno);
  struct timeval *user = &used.ru_utime, *system = &used.ru_stime;
  char cpu[64];
  snprintf(cpu, sizeof cpu, ", \"cpu_s\": %.6f",
           user->tv_sec + system->tv_sec + (user->tv_usec + system->tv_usec) / 1e6);
  report(elapsed, requests * batch, requests, cpu);
  return 0;
}
