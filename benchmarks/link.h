/* One connection of a load generator: whole frames in, whole frames out, over loopback.
 *
 * `out` holds one request, which is sent as far as the socket takes it; `in` holds what has come of
 * responses. Whatever goes wrong is fatal.
 */
#ifndef LAKELOG_LINK_H
#define LAKELOG_LINK_H
#include "batch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_BATCH = 1 << 20, RECEIVE_BYTES = 4 << 20 };

struct link {
  int fd;
  uint8_t *out, *in;
  size_t out_size, out_sent, in_size, in_used, in_room, portion;
};

static inline struct link link_open(int port, size_t out_room, size_t in_room) {
  int on = 1;
  struct link link = {.fd = socket(AF_INET, SOCK_STREAM, 0), .in_room = in_room,
                      .portion = in_room};
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(link.fd, (struct sockaddr *)&to, sizeof to)) fail("cannot connect", errno);
  setsockopt(link.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  link.out = malloc(out_room);
  link.in = malloc(in_room);
  return link;
}

static inline void link_unblock(struct link *link) { fcntl(link->fd, F_SETFL, O_NONBLOCK); }

/* --- requests ---------------------------------------------------------------------------- */

static inline uint8_t *begin(uint8_t *frame, int api, int version, int correlation) {
  uint8_t *at = put(put(put(frame + 4, api, 2), version, 2), correlation, 4);
  at = put_bytes(put(at, 4, 2), "load", 4);
  *at++ = 0;
  return at;
}

static inline void finish(struct link *link, uint8_t *end) {
  put(link->out, end - link->out - 4, 4);
  link->out_size = end - link->out;
}

static inline bool link_is_sending(const struct link *link) {
  return link->out_sent < link->out_size;
}

/* Sends what the socket takes of the request, or of the rest of it. */
static inline void link_send(struct link *link) {
  while (link_is_sending(link)) {
    size_t left = link->out_size - link->out_sent;
    ssize_t sent = send(link->fd, link->out + link->out_sent, left, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) fail("cannot send", errno);
    link->out_sent += sent;
  }
}

static inline void link_start(struct link *link) {
  link->out_sent = 0;
  link_send(link);
}

/* --- responses --------------------------------------------------------------------------- */

/* One portion of what has come; `link_next` tells which responses are complete by that. */
static inline void link_receive(struct link *link) {
  if (link->in_used) {
    memmove(link->in, link->in + link->in_used, link->in_size - link->in_used);
    link->in_size -= link->in_used;
    link->in_used = 0;
  }
  size_t room = link->in_room - link->in_size;
  size_t most = room < link->portion ? room : link->portion;
  ssize_t count = recv(link->fd, link->in + link->in_size, most, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN)) fail("connection lost", errno);
  if (count > 0) link->in_size += count;
}

/* The body of the next complete response, of a flexible version; false if there is none. */
static inline bool link_next(struct link *link, struct reader *body) {
  struct reader in = {link->in + link->in_used, link->in + link->in_size};
  if (in.end - in.at < 4) return false;
  int64_t length = get(&in, 4);
  if (length < 5 || length + 4 > (int64_t)link->in_room) fail("bad response size", length);
  if (in.end - in.at < length) return false;
  *body = (struct reader){in.at, in.at + length};
  link->in_used += length + 4;
  get(body, 4);
  skip_tags(body);
  return true;
}

/* Sends the request that ends at `end` and waits for its answer; the link still blocks. */
static inline struct reader ask(struct link *link, uint8_t *end) {
  struct reader body;
  finish(link, end);
  link_start(link);
  while (!link_next(link, &body)) link_receive(link);
  return body;
}

#endif
