/* An open-loop producer: requests are due at a steady rate, whatever the broker does.
 *
 *   steady port=P topic=T partitions=N connections=C in_flight=F batch=BYTES records=R rate=Q
 *          seconds=S
 *
 * Request k is due at start + k / rate, on connection k % C. A connection sends what is due as long
 * as fewer than `in_flight` of its requests wait for their answers; what it cannot send then, it
 * sends as soon as it can, one after the other. Latency is measured from when a request was due, so
 * a broker that stalls is charged with all that it kept waiting. What is sent is as in `load.c`.
 *
 * It ends when all that was due in `seconds` is answered, and prints one JSON object. The clock is
 * waited for by `ppoll` without slack, not by spinning: the brokers need the processors.
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "produce.h"
#include <math.h>
#include <poll.h>
#include <sys/prctl.h>

enum { MAX_CONNECTIONS = 64, MAX_IN_FLIGHT = 5, OUT_ROOM = MAX_BATCH + 1024, IN_ROOM = 1 << 16,
       BEHIND_SECONDS_MAX = 20 };

struct connection {
  struct producer producer;
  int64_t next;                                  /* the number of its next request */
  int in_flight, first_sent;
  double due_at[MAX_IN_FLIGHT];
};

static const char *topic = "bench";
static int64_t port = 9092, partitions = 1, connection_count = 1, in_flight = 5, batch = 1024,
               records = 1, rate = 1000, seconds = 5;
static const struct argument arguments[] = {
    {"topic", .text = &topic},
    {"port", &port, 1, 65535},
    {"partitions", &partitions, 1, MAX_PARTITIONS},
    {"connections", &connection_count, 1, MAX_CONNECTIONS},
    {"in_flight", &in_flight, 1, MAX_IN_FLIGHT},
    {"batch", &batch, 128, MAX_BATCH},
    {"records", &records, 1, 10000},
    {"rate", &rate, 1, 1000000},
    {"seconds", &seconds, 1, 600},
    {NULL},
};
static struct connection connections[MAX_CONNECTIONS];
static double start;

static double due(const struct connection *c) {
  return c->next < rate * seconds ? start + (double)c->next / rate : INFINITY;
}

static void start_requests(struct connection *c, double time) {
  while (!link_is_sending(&c->producer.link) && c->in_flight < in_flight && due(c) <= time) {
    producer_renew(&c->producer);
    c->due_at[(c->first_sent + c->in_flight++) % MAX_IN_FLIGHT] = due(c);
    c->next += connection_count;
    link_start(&c->producer.link);
  }
}

static void receive(struct connection *c) {
  struct reader body;
  link_receive(&c->producer.link);
  while (link_next(&c->producer.link, &body)) {
    check_produced(body);
    note_sample(now() - c->due_at[c->first_sent]);
    c->first_sent = (c->first_sent + 1) % MAX_IN_FLIGHT;
    c->in_flight--;
  }
}

/* When the first connection that may send has something due; infinity if none will. */
static double wake_time(void) {
  double first = INFINITY;
  for (int i = 0; i < connection_count; i++)
    if (connections[i].in_flight < in_flight) first = fmin(first, due(&connections[i]));
  return first;
}

static void wait_until(struct pollfd *polls, double time) {
  double left = fmin(fmax(time - now(), 0), 1);
  struct timespec span = {.tv_sec = left, .tv_nsec = (left - (int)left) * 1e9};
  if (ppoll(polls, connection_count, &span, NULL) < 0) fail("ppoll", errno);
}

static void run(void) {
  struct pollfd polls[MAX_CONNECTIONS];
  for (;;) {
    bool busy = false;
    for (int i = 0; i < connection_count; i++) {
      struct connection *c = &connections[i];
      start_requests(c, now());
      bool sending = link_is_sending(&c->producer.link);
      busy |= sending || c->in_flight || due(c) != INFINITY;
      polls[i] = (struct pollfd){c->producer.link.fd, POLLIN | (sending ? POLLOUT : 0), 0};
    }
    if (!busy) return;
    if (now() > start + seconds + BEHIND_SECONDS_MAX)
      fail("the broker does not keep up, requests answered", sample_count);
    wait_until(polls, wake_time());
    for (int i = 0; i < connection_count; i++) {
      if (polls[i].revents & POLLOUT) link_send(&connections[i].producer.link);
      if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(&connections[i]);
    }
  }
}

static void connect_one(int i) {
  static struct topic found;
  struct connection *c = &connections[i];
  struct producer *p = &c->producer;
  if (i == 0) {
    struct link link = link_open(port, OUT_ROOM, IN_ROOM);
    wait_for_topic(&link, topic, &found);
    close(link.fd);
  }
  p->link = link_open(found.leader_ports[i % partitions], OUT_ROOM, IN_ROOM);
  c->next = i;
  producer_prepare(p, found.id, i % partitions, batch, records, -1);
  if (i == 0) learn_sequence_patterns(p->batch, p->batch_size);
  link_unblock(&p->link);
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: steady name=value...", argc);
  parse(arguments, argv + 1);
  crc_prepare();
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  for (int i = 0; i < connection_count; i++) connect_one(i);
  start = now() + 0.05;
  run();
  report(now() - start, sample_count * connections[0].producer.batch_size, sample_count, "");
  return 0;
}
