/* A Kafka client that costs nothing: it measures the broker, not a client library.
 *
 *   load create  port=P topic=T partitions=N replicas=K
 *   load produce port=P topic=T partitions=N connections=C in_flight=F batch=BYTES records=R
 *                megabytes=M requests=Q acks=-1|1 seconds=S
 *   load fetch   port=P topic=T partitions=N connections=C batch=BYTES megabytes=M seconds=S
 *                offset=O portion=BYTES
 *   load delete  port=P topic=T
 *
 * What it sends is what a current client sends: Produce v13 and Fetch v16 by topic id, batches of
 * format v2 with a producer id from InitProducerId and rising sequence numbers, fetch sessions
 * (KIP-227). Connection i works on partition i % N, at its leader. A run ends at the first of its limits
 * (megabytes, requests, seconds) and prints one JSON object. The loop is closed: a request is sent
 * when an answer makes room for it (`steady.c` sends when it is time).
 *
 * `fetch` reads its partition from `offset` on and goes on at the start after the end, so the bytes
 * it asks for may exceed what is stored; `portion` is the most that one call takes from the socket.
 * Whole batches count, for no consumer can use another: Kafka cuts the last one off where the limit
 * is. Loopback only.
 */
#define _GNU_SOURCE
#include "arguments.h"
#include "fetch.h"
#include "produce.h"
#include <poll.h>

enum { MAX_CONNECTIONS = 64, MAX_IN_FLIGHT = 5, OUT_ROOM = MAX_BATCH + 1024 };

/* A producer or a consumer, whichever the mode asks for. */
struct connection {
  union {
    struct producer producer;
    struct consumer consumer;
    struct link link;                            /* which both begin with */
  };
  int in_flight, first_sent;
  double sent_at[MAX_IN_FLIGHT];
};

static const char *mode, *topic = "bench";
static int64_t port = 9092, partitions = 1, replicas = 1, connection_count = 1, in_flight = 5, batch = 16384,
               records = 1, acks = -1, seconds = 60, megabytes = 1000, requests = 1 << 30,
               first_offset = 0, portion = RECEIVE_BYTES;
static const struct argument arguments[] = {
    {"topic", .text = &topic},
    {"port", &port, 1, 65535},
    {"partitions", &partitions, 1, MAX_PARTITIONS},
    {"replicas", &replicas, 1, MAX_BROKERS},
    {"connections", &connection_count, 1, MAX_CONNECTIONS},
    {"in_flight", &in_flight, 1, MAX_IN_FLIGHT},
    {"batch", &batch, 128, MAX_BATCH},
    {"records", &records, 1, 10000},
    {"megabytes", &megabytes, 1, 100000},
    {"requests", &requests, 1, 1 << 30},
    {"acks", &acks, -1, 1},
    {"offset", &first_offset, 0, INT64_MAX},
    {"portion", &portion, 1024, RECEIVE_BYTES},
    {"seconds", &seconds, 1, 600},
    {NULL},
};
static struct connection connections[MAX_CONNECTIONS];
static struct topic found_topic;
static int64_t bytes_done, bytes_begun, requests_done, requests_begun;
static double deadline;

static bool producing(void) { return mode[0] == 'p'; }

static bool wants_more(void) {
  int64_t bytes = producing() ? bytes_begun : bytes_done;
  return requests_begun < requests && bytes < megabytes * 1000000 && now() < deadline;
}

static void prepare(struct connection *c) {
  if (producing()) {
    producer_renew(&c->producer);
    bytes_begun += c->producer.batch_size;
  } else {
    consumer_prepare(&c->consumer, found_topic.id);
  }
}

static void start_requests(struct connection *c) {
  int allowed = producing() ? in_flight : 1;
  while (!link_is_sending(&c->link) && c->in_flight < allowed && wants_more()) {
    prepare(c);
    c->sent_at[(c->first_sent + c->in_flight++) % MAX_IN_FLIGHT] = now();
    requests_begun++;
    link_start(&c->link);
  }
}

static void accept_fetched(struct consumer *c, struct reader body) {
  size_t size;
  struct fetched found = consumer_accept(c, body);
  while (next_batch(c, &found.records, &size)) bytes_done += size;
  if (found.high_watermark == 0) fail("nothing to fetch", c->partition);
  if (found.high_watermark > 0 && c->offset >= found.high_watermark) c->offset = 0;
}

static void receive(struct connection *c) {
  struct reader body;
  link_receive(&c->link);
  while (link_next(&c->link, &body)) {
    if (producing()) {
      check_produced(body);
      bytes_done += c->producer.batch_size;
    } else {
      accept_fetched(&c->consumer, body);
    }
    note_sample(now() - c->sent_at[c->first_sent]);
    c->first_sent = (c->first_sent + 1) % MAX_IN_FLIGHT;
    c->in_flight--;
    requests_done++;
  }
}

static void run(void) {
  struct pollfd polls[MAX_CONNECTIONS];
  for (;;) {
    bool busy = false;
    for (int i = 0; i < connection_count; i++) {
      struct connection *c = &connections[i];
      start_requests(c);
      bool sending = link_is_sending(&c->link);
      busy |= sending || c->in_flight;
      polls[i] = (struct pollfd){c->link.fd, POLLIN | (sending ? POLLOUT : 0), 0};
    }
    if (!busy) return;
    if (now() > deadline + 30) fail("no answer", requests_done);
    if (poll(polls, connection_count, 1000) < 0) fail("poll", errno);
    for (int i = 0; i < connection_count; i++) {
      if (polls[i].revents & POLLOUT) link_send(&connections[i].link);
      if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(&connections[i]);
    }
  }
}

static void connect_one(int i) {
  struct connection *c = &connections[i];
  int partition = i % partitions;
  struct link link = link_open(found_topic.leader_ports[partition], OUT_ROOM, RECEIVE_BYTES);
  if (producing()) {
    c->producer.link = link;
    producer_prepare(&c->producer, found_topic.id, partition, batch, records, acks);
    if (i == 0) learn_sequence_patterns(c->producer.batch, c->producer.batch_size);
  } else {
    c->consumer = (struct consumer){.link = link, .partition = partition, .wait_ms = 500,
                                    .bytes_max = batch, .uses_session = true,
                                    .offset = first_offset};
    c->consumer.link.portion = portion;
  }
  link_unblock(&c->link);
}

static void find(void) {
  struct link link = link_open(port, OUT_ROOM, RECEIVE_BYTES);
  wait_for_topic(&link, topic, &found_topic);
  close(link.fd);
}

static void measure(void) {
  find();
  for (int i = 0; i < connection_count; i++) connect_one(i);
  double start = now();
  deadline = start + seconds;
  run();
  report(now() - start, bytes_done, requests_done, "");
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: load create|produce|fetch|delete name=value...", argc);
  mode = argv[1];
  parse(arguments, argv + 2);
  crc_prepare();
  if (!strcmp(mode, "create")) {
    struct link link = link_open(port, OUT_ROOM, RECEIVE_BYTES);
    create_topic(&link, topic, partitions, replicas);
    find();
    pause_ms(500);                               /* a leader is announced before it serves */
  } else if (!strcmp(mode, "delete")) {
    struct link link = link_open(port, OUT_ROOM, RECEIVE_BYTES);
    delete_topic(&link, topic);
  } else if (!strcmp(mode, "produce") || !strcmp(mode, "fetch")) {
    measure();
  } else {
    fail("unknown mode", 0);
  }
  return 0;
}
