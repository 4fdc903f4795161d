/* A Kafka client that costs nothing: it measures the broker, not a client library.
 *
 *   load create  port=P topic=T partitions=N
 *   load produce port=P topic=T partitions=N connections=C in_flight=F batch=BYTES records=R
 *                megabytes=M requests=Q acks=-1|1 seconds=S
 *   load fetch   port=P topic=T partitions=N connections=C batch=BYTES megabytes=M seconds=S
 *   load delete  port=P topic=T
 *
 * What it sends is what a current client sends: Produce v13 and Fetch v16 by topic id, batches of
 * format v2 with a producer id from InitProducerId and rising sequence numbers, fetch sessions
 * (KIP-227). Connection i works on partition i % N. A run ends at the first of its limits
 * (megabytes, requests, seconds) and prints one JSON object.
 *
 * `fetch` reads its partition from the start and begins again at the end, so the bytes it asks
 * for may exceed what is stored; they are warm. Loopback only.
 */
#define _GNU_SOURCE
#include "batch.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE = 0, FETCH = 1, METADATA = 3, CREATE_TOPICS = 19, DELETE_TOPICS = 20,
       INIT_PRODUCER_ID = 22 };
enum { MAX_CONNECTIONS = 64, MAX_IN_FLIGHT = 5, MAX_BATCH = 1 << 20, RECEIVE_BYTES = 4 << 20,
       MAX_SAMPLES = 1 << 22, COORDINATOR_LOADING = 14 };

/* --- one request and its answer, for setting up ------------------------------------------- */

static uint8_t *begin(uint8_t *frame, int api, int version, int correlation) {
  uint8_t *at = put(put(put(frame + 4, api, 2), version, 2), correlation, 4);
  at = put_bytes(put(at, 4, 2), "load", 4);
  *at++ = 0;
  return at;
}

static size_t finish(uint8_t *frame, uint8_t *end) {
  put(frame, end - frame - 4, 4);
  return end - frame;
}

static void receive_all(int fd, uint8_t *data, size_t size) {
  while (size) {
    ssize_t count = recv(fd, data, size, 0);
    if (count <= 0) fail("connection lost", errno);
    data += count;
    size -= count;
  }
}

static struct reader ask(int fd, uint8_t *frame, uint8_t *end, uint8_t *answer) {
  size_t size = finish(frame, end);
  if (send(fd, frame, size, MSG_NOSIGNAL) != (ssize_t)size) fail("cannot send", errno);
  receive_all(fd, answer, 4);
  struct reader in = {answer, answer + 4};
  int64_t length = get(&in, 4);
  if (length < 5 || length > RECEIVE_BYTES) fail("bad response size", length);
  receive_all(fd, answer, length);
  in = (struct reader){answer, answer + length};
  get(&in, 4);
  skip_tags(&in);
  return in;
}

static int dial(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(fd, (struct sockaddr *)&to, sizeof to)) fail("cannot connect", errno);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static void create_topic(int fd, const char *topic, int partitions, uint8_t *buffer) {
  uint8_t *at = put_compact(put_uvarint(begin(buffer, CREATE_TOPICS, 7, 1), 2), topic);
  at = put(put(at, partitions, 4), 1, 2);
  at = put(at, 0x010100, 3);                     /* no assignments, no configs, no tags */
  at = put(put(at, 20000, 4), 0, 2);             /* timeout, validate only: no, no tags */
  struct reader in = ask(fd, buffer, at, buffer);
  get(&in, 4);
  get_length(&in);
  skip_compact(&in);
  take(&in, 16);
  int code = get(&in, 2);
  if (code) fail("CreateTopics error", code);
}

static void delete_topic(int fd, const char *topic, uint8_t *buffer) {
  uint8_t *at = put_compact(put_uvarint(begin(buffer, DELETE_TOPICS, 6, 1), 2), topic);
  at = put(put(put(at, 0, 8), 0, 8), 0, 1);      /* by name: a zero id, no tags */
  at = put(put(at, 20000, 4), 0, 1);
  struct reader in = ask(fd, buffer, at, buffer);
  get(&in, 4);
  get_length(&in);
  skip_compact(&in);
  take(&in, 16);
  int code = get(&in, 2);
  if (code) fail("DeleteTopics error", code);
}

/* False while the topic or the leader of one of its partitions is not known yet. */
static bool find_topic(int fd, const char *topic, uint8_t *topic_id, uint8_t *buffer) {
  uint8_t *at = put_uvarint(begin(buffer, METADATA, 12, 1), 2);
  at = put(put_compact(put(put(at, 0, 8), 0, 8), topic), 0, 1);
  at = put(at, 0, 3);                            /* no creation, no authorized operations, no tags */
  struct reader in = ask(fd, buffer, at, buffer);
  get(&in, 4);
  for (uint32_t brokers = get_length(&in); brokers; brokers--) {
    get(&in, 4);
    skip_compact(&in);
    get(&in, 4);
    skip_compact(&in);
    skip_tags(&in);
  }
  skip_compact(&in);
  get(&in, 4);
  get_length(&in);
  bool known = get(&in, 2) == 0;
  skip_compact(&in);
  memcpy(topic_id, take(&in, 16), 16);
  get(&in, 1);
  for (uint32_t partitions = get_length(&in); partitions; partitions--) {
    known &= get(&in, 2) == 0;
    take(&in, 12);
    for (int list = 0; list < 3; list++) skip_int32s(&in);
    skip_tags(&in);
  }
  return known;
}

static void wait_for_topic(int fd, const char *topic, uint8_t *topic_id, uint8_t *buffer) {
  for (int attempt = 0; attempt < 200; attempt++) {
    if (find_topic(fd, topic, topic_id, buffer)) return;
    pause_ms(50);
  }
  fail("topic has no leader", 0);
}

static int64_t init_producer_id(int fd, int *epoch, uint8_t *buffer) {
  int code = 0;
  for (int attempt = 0; attempt < 200; attempt++) {
    uint8_t *at = put(put(begin(buffer, INIT_PRODUCER_ID, 4, 1), 0, 1), 0, 4);
    at = put(put(put(at, -1, 8), -1, 2), 0, 1);
    struct reader in = ask(fd, buffer, at, buffer);
    get(&in, 4);
    code = get(&in, 2);
    int64_t producer_id = get(&in, 8);
    *epoch = get(&in, 2);
    if (code == 0) return producer_id;
    if (code != COORDINATOR_LOADING) break;
    pause_ms(50);
  }
  fail("InitProducerId error", code);
  return -1;
}

/* --- the load ---------------------------------------------------------------------------- */

struct options {
  const char *mode, *topic;
  int port, partitions, connections, in_flight, batch, records, acks, seconds;
  int64_t megabytes, requests;
};

struct connection {
  int fd, partition, in_flight, correlation;
  uint8_t *out, *batch, *in;
  size_t out_size, out_sent, in_size, batch_size;
  uint32_t plain_crc, sequence;
  int64_t fetch_offset;
  int32_t session_id, session_epoch;
  double sent_at[MAX_IN_FLIGHT];
  int first_sent;
};

static struct options options;
static uint8_t topic_id[16];
static int64_t bytes_done, bytes_begun, requests_done, requests_begun;
static float *samples;
static double deadline;

static void prepare_produce(struct connection *c) {
  int epoch;
  int64_t producer_id = init_producer_id(c->fd, &epoch, c->in);
  uint8_t *scratch = malloc(MAX_BATCH + 64);
  c->batch_size = build_batch(scratch, options.batch, options.records, producer_id, epoch);
  if (c->batch_size > MAX_BATCH) fail("batch too large", c->batch_size);
  uint8_t *at = put(put(put(begin(c->out, PRODUCE, 13, 0), 0, 1), options.acks, 2), 30000, 4);
  at = put_uvarint(put_bytes(put_uvarint(at, 2), topic_id, 16), 2);
  at = put_uvarint(put(at, c->partition, 4), c->batch_size + 1);
  c->batch = at;
  at = put_bytes(at, scratch, c->batch_size);
  free(scratch);
  c->out_size = finish(c->out, put(at, 0, 3));
  c->plain_crc = crc32c(c->batch + AT_ATTRIBUTES, c->batch_size - AT_ATTRIBUTES);
}

static void next_produce(struct connection *c) {
  set_sequence(c->batch, c->plain_crc, c->sequence);
  c->sequence = (c->sequence + options.records) & 0x7fffffff;
  put(c->out + 8, c->correlation++, 4);
  bytes_begun += c->batch_size;
}

static void next_fetch(struct connection *c) {
  uint8_t *at = begin(c->out, FETCH, 16, c->correlation++);
  at = put(put(put(put(at, 500, 4), 1, 4), RECEIVE_BYTES / 2, 4), 0, 1);
  at = put(put(at, c->session_id, 4), c->session_epoch, 4);
  at = put_uvarint(put_bytes(put_uvarint(at, 2), topic_id, 16), 2);
  at = put(put(put(at, c->partition, 4), -1, 4), c->fetch_offset, 8);
  at = put(put(put(put(at, -1, 4), -1, 8), options.batch, 4), 0, 2);
  at = put(at, 0x010100, 3);                     /* nothing forgotten, no rack, no tags */
  c->out_size = finish(c->out, at);
}

static void accept_produce(struct connection *c, struct reader in) {
  get_length(&in);
  take(&in, 16);
  get_length(&in);
  get(&in, 4);
  int code = get(&in, 2);
  if (code) fail("Produce error", code);
  bytes_done += c->batch_size;
}

static void accept_fetch(struct connection *c, struct reader in) {
  get(&in, 4);
  int code = get(&in, 2);
  if (code) fail("Fetch error", code);
  c->session_id = get(&in, 4);
  c->session_epoch = c->session_id ? c->session_epoch + 1 : -1;
  if (!get_length(&in)) return;                  /* nothing new in this session */
  take(&in, 16);
  get_length(&in);
  get(&in, 4);
  if ((code = get(&in, 2))) fail("Fetch partition error", code);
  int64_t high_watermark = get(&in, 8);
  take(&in, 16);
  for (uint32_t aborted = get_length(&in); aborted; aborted--) {
    take(&in, 16);
    skip_tags(&in);
  }
  get(&in, 4);
  uint32_t size = get_length(&in);
  struct reader records = {take(&in, size), in.at};
  bytes_done += size;
  while (records.end - records.at >= BATCH_HEADER) {
    int64_t base = get(&records, 8), length = get(&records, 4);
    if (length > records.end - records.at) break;
    struct reader header = {records.at + AT_ATTRIBUTES + 2 - 12, records.end};
    c->fetch_offset = base + get(&header, 4) + 1;
    take(&records, length);
  }
  if (high_watermark == 0) fail("nothing to fetch", c->partition);
  if (c->fetch_offset >= high_watermark) c->fetch_offset = 0;
}

static bool producing(void) { return options.mode[0] == 'p'; }

static bool wants_more(void) {
  int64_t bytes = producing() ? bytes_begun : bytes_done;
  return requests_begun < options.requests && bytes < options.megabytes * 1000000 &&
         now() < deadline;
}

static void complete(struct connection *c, double sent_at) {
  if (requests_done < MAX_SAMPLES) samples[requests_done] = now() - sent_at;
  requests_done++;
  c->in_flight--;
}

static void start_requests(struct connection *c) {
  int allowed = producing() ? options.in_flight : 1;
  while (c->out_sent == c->out_size || !c->correlation) {
    if (c->in_flight == allowed || !wants_more()) return;
    producing() ? next_produce(c) : next_fetch(c);
    c->sent_at[(c->first_sent + c->in_flight++) % MAX_IN_FLIGHT] = now();
    requests_begun++;
    for (c->out_sent = 0; c->out_sent < c->out_size;) {
      size_t left = c->out_size - c->out_sent;
      ssize_t sent = send(c->fd, c->out + c->out_sent, left, MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0) fail("cannot send", errno);
      c->out_sent += sent;
    }
  }
}

static void resume_send(struct connection *c) {
  ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) fail("cannot send", errno);
  if (sent > 0) c->out_sent += sent;
}

static void receive(struct connection *c) {
  ssize_t count = recv(c->fd, c->in + c->in_size, RECEIVE_BYTES - c->in_size, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN)) fail("connection lost", errno);
  if (count > 0) c->in_size += count;
  size_t used = 0;
  while (c->in_size - used >= 4) {
    struct reader in = {c->in + used, c->in + c->in_size};
    int64_t length = get(&in, 4);
    if (length < 5 || length + 4 > RECEIVE_BYTES) fail("bad response size", length);
    if (in.end - in.at < length) break;
    in.end = in.at + length;
    get(&in, 4);
    skip_tags(&in);
    producing() ? accept_produce(c, in) : accept_fetch(c, in);
    complete(c, c->sent_at[c->first_sent]);
    c->first_sent = (c->first_sent + 1) % MAX_IN_FLIGHT;
    used += length + 4;
  }
  memmove(c->in, c->in + used, c->in_size - used);
  c->in_size -= used;
}

static void run(struct connection *connections) {
  struct pollfd polls[MAX_CONNECTIONS];
  for (;;) {
    bool busy = false;
    for (int i = 0; i < options.connections; i++) {
      struct connection *c = &connections[i];
      start_requests(c);
      bool sending = c->correlation && c->out_sent < c->out_size;
      busy |= sending || c->in_flight;
      polls[i] = (struct pollfd){c->fd, POLLIN | (sending ? POLLOUT : 0), 0};
    }
    if (!busy) return;
    if (now() > deadline + 30) fail("no answer", requests_done);
    if (poll(polls, options.connections, 1000) < 0) fail("poll", errno);
    for (int i = 0; i < options.connections; i++) {
      if (polls[i].revents & POLLOUT) resume_send(&connections[i]);
      if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) receive(&connections[i]);
    }
  }
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static void report(double elapsed) {
  int64_t count = requests_done < MAX_SAMPLES ? requests_done : MAX_SAMPLES;
  if (!count) fail("no request was answered", 0);
  qsort(samples, count, sizeof *samples, by_value);
  printf("{\"seconds\": %.6f, \"bytes\": %lld, \"requests\": %lld, \"p50_ms\": %.4f, "
         "\"p99_ms\": %.4f}\n", elapsed, (long long)bytes_done, (long long)requests_done,
         samples[count / 2] * 1e3, samples[count * 99 / 100] * 1e3);
}

static void measure(void) {
  static struct connection connections[MAX_CONNECTIONS];
  samples = malloc(MAX_SAMPLES * sizeof *samples);
  for (int i = 0; i < options.connections; i++) {
    struct connection *c = &connections[i];
    *c = (struct connection){.fd = dial(options.port), .partition = i % options.partitions};
    c->out = malloc(MAX_BATCH + 1024);
    c->in = malloc(RECEIVE_BYTES);
    if (i == 0) wait_for_topic(c->fd, options.topic, topic_id, c->in);
    if (producing()) prepare_produce(c);
    if (producing() && i == 0) learn_sequence_patterns(c->batch, c->batch_size);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
  }
  double start = now();
  deadline = start + options.seconds;
  run(connections);
  report(now() - start);
}

static int64_t number(const char *name, const char *text, int64_t low, int64_t high) {
  char *end;
  int64_t value = strtoll(text, &end, 10);
  if (end == text || *end || value < low || value > high) {
    fprintf(stderr, "load: %s=%s is not a number from %lld to %lld\n", name, text,
            (long long)low, (long long)high);
    exit(2);
  }
  return value;
}

static void parse(int argc, char **argv) {
  options = (struct options){.mode = argv[1], .topic = "bench", .port = 9092, .partitions = 1,
                             .connections = 1, .in_flight = 5, .batch = 16384, .records = 1,
                             .acks = -1, .seconds = 60, .megabytes = 1000, .requests = 1 << 30};
  for (int i = 2; i < argc; i++) {
    char *text = strchr(argv[i], '=');
    if (!text) fail("arguments are name=value", i);
    *text++ = 0;
    const char *name = argv[i];
    if (!strcmp(name, "topic")) options.topic = text;
    else if (!strcmp(name, "port")) options.port = number(name, text, 1, 65535);
    else if (!strcmp(name, "partitions")) options.partitions = number(name, text, 1, 10000);
    else if (!strcmp(name, "connections"))
      options.connections = number(name, text, 1, MAX_CONNECTIONS);
    else if (!strcmp(name, "in_flight")) options.in_flight = number(name, text, 1, MAX_IN_FLIGHT);
    else if (!strcmp(name, "batch")) options.batch = number(name, text, 128, MAX_BATCH);
    else if (!strcmp(name, "records")) options.records = number(name, text, 1, 10000);
    else if (!strcmp(name, "megabytes")) options.megabytes = number(name, text, 1, 100000);
    else if (!strcmp(name, "requests")) options.requests = number(name, text, 1, 1 << 30);
    else if (!strcmp(name, "acks")) options.acks = number(name, text, -1, 1);
    else if (!strcmp(name, "seconds")) options.seconds = number(name, text, 1, 600);
    else fail("unknown argument", i);
  }
}

int main(int argc, char **argv) {
  static uint8_t buffer[RECEIVE_BYTES];
  if (argc < 2) fail("usage: load create|produce|fetch|delete name=value...", argc);
  parse(argc, argv);
  crc_prepare();
  if (!strcmp(options.mode, "create")) {
    int fd = dial(options.port);
    create_topic(fd, options.topic, options.partitions, buffer);
    wait_for_topic(fd, options.topic, topic_id, buffer);
    pause_ms(500);                               /* a leader is announced before it serves */
  } else if (!strcmp(options.mode, "delete")) {
    delete_topic(dial(options.port), options.topic, buffer);
  } else if (!strcmp(options.mode, "produce") || !strcmp(options.mode, "fetch")) {
    measure();
  } else {
    fail("unknown mode", 0);
  }
  return 0;
}
