/* What a load generator asks a broker before and after the load: topics and producer ids. */
#ifndef LAKELOG_CLUSTER_H
#define LAKELOG_CLUSTER_H
#include "link.h"

enum { METADATA = 3, CREATE_TOPICS = 19, DELETE_TOPICS = 20, INIT_PRODUCER_ID = 22 };
enum { COORDINATOR_LOADING = 14, ATTEMPTS = 600, ATTEMPT_PAUSE_MS = 50 };
enum { MAX_BROKERS = 16, MAX_PARTITIONS = 10000 };

/* A topic, and the port of the leader of each of its partitions. */
struct topic {
  uint8_t id[16];
  uint16_t leader_ports[MAX_PARTITIONS];
};

struct broker {
  int id, port;
};

static inline void check_topic_result(struct reader in, const char *what) {
  get(&in, 4);
  get_length(&in);
  skip_compact(&in);
  take(&in, 16);
  int code = get(&in, 2);
  if (code) fail(what, code);
}

/* With more than one replica, a record is committed when two of them have it. */
static inline void create_topic(struct link *link, const char *topic, int partitions,
                                int replicas) {
  uint8_t *at = put_compact(put_uvarint(begin(link->out, CREATE_TOPICS, 7, 1), 2), topic);
  at = put(put(at, partitions, 4), replicas, 2);
  at = put(at, 1, 1);                            /* no assignments */
  at = put_uvarint(at, replicas > 1 ? 2 : 1);
  if (replicas > 1) at = put(put_compact(put_compact(at, "min.insync.replicas"), "2"), 0, 1);
  at = put(at, 0, 1);                            /* no tags */
  at = put(put(at, 20000, 4), 0, 2);             /* timeout, validate only: no, no tags */
  check_topic_result(ask(link, at), "CreateTopics error");
}

static inline void delete_topic(struct link *link, const char *topic) {
  uint8_t *at = put_compact(put_uvarint(begin(link->out, DELETE_TOPICS, 6, 1), 2), topic);
  at = put(put(put(at, 0, 8), 0, 8), 0, 1);      /* by name: a zero id, no tags */
  at = put(put(at, 20000, 4), 0, 1);
  check_topic_result(ask(link, at), "DeleteTopics error");
}

static inline int port_of(const struct broker *brokers, int count, int id) {
  for (int i = 0; i < count; i++)
    if (brokers[i].id == id) return brokers[i].port;
  return 0;
}

/* False while the topic is not known, or a partition has no leader or a replica out of sync. */
static inline bool find_topic(struct link *link, const char *name, struct topic *topic) {
  struct broker brokers[MAX_BROKERS];
  uint8_t *at = put_uvarint(begin(link->out, METADATA, 12, 1), 2);
  at = put(put_compact(put(put(at, 0, 8), 0, 8), name), 0, 1);
  at = put(at, 0, 3);                            /* no creation, no operations, no tags */
  struct reader in = ask(link, at);
  get(&in, 4);
  int broker_count = get_length(&in);
  if (broker_count > MAX_BROKERS) fail("too many brokers", broker_count);
  for (int i = 0; i < broker_count; i++) {
    brokers[i].id = get(&in, 4);
    skip_compact(&in);
    brokers[i].port = get(&in, 4);
    skip_compact(&in);
    skip_tags(&in);
  }
  skip_compact(&in);
  get(&in, 4);
  get_length(&in);
  bool known = get(&in, 2) == 0;
  skip_compact(&in);
  memcpy(topic->id, take(&in, 16), 16);
  get(&in, 1);
  for (uint32_t partitions = get_length(&in); partitions; partitions--) {
    known &= get(&in, 2) == 0;
    int index = get(&in, 4);
    if (index < 0 || index >= MAX_PARTITIONS) fail("too many partitions", index);
    topic->leader_ports[index] = port_of(brokers, broker_count, get(&in, 4));
    known &= topic->leader_ports[index] != 0;
    get(&in, 4);
    uint32_t replicas = skip_int32s(&in), in_sync = skip_int32s(&in);
    known &= replicas == in_sync;
    skip_int32s(&in);
    skip_tags(&in);
  }
  return known;
}

static inline void wait_for_topic(struct link *link, const char *name, struct topic *topic) {
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (find_topic(link, name, topic)) return;
    pause_ms(ATTEMPT_PAUSE_MS);
  }
  fail("a partition has no leader or a replica is out of sync", 0);
}

static inline int64_t init_producer_id(struct link *link, int *epoch) {
  int code = 0;
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    uint8_t *at = put(put(begin(link->out, INIT_PRODUCER_ID, 4, 1), 0, 1), 0, 4);
    struct reader in = ask(link, put(put(put(at, -1, 8), -1, 2), 0, 1));
    get(&in, 4);
    code = get(&in, 2);
    int64_t producer_id = get(&in, 8);
    *epoch = get(&in, 2);
    if (code == 0) return producer_id;
    if (code != COORDINATOR_LOADING) break;
    pause_ms(ATTEMPT_PAUSE_MS);
  }
  fail("InitProducerId error", code);
  return -1;
}

#endif
