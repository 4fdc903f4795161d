/* What a load generator asks a broker before and after the load: topics and producer ids. */
#ifndef LAKELOG_CLUSTER_H
#define LAKELOG_CLUSTER_H
#include "link.h"

enum { METADATA = 3, CREATE_TOPICS = 19, DELETE_TOPICS = 20, INIT_PRODUCER_ID = 22 };
enum { COORDINATOR_LOADING = 14, ATTEMPTS = 200, ATTEMPT_PAUSE_MS = 50 };

static inline void check_topic_result(struct reader in, const char *what) {
  get(&in, 4);
  get_length(&in);
  skip_compact(&in);
  take(&in, 16);
  int code = get(&in, 2);
  if (code) fail(what, code);
}

static inline void create_topic(struct link *link, const char *topic, int partitions) {
  uint8_t *at = put_compact(put_uvarint(begin(link->out, CREATE_TOPICS, 7, 1), 2), topic);
  at = put(put(at, partitions, 4), 1, 2);
  at = put(at, 0x010100, 3);                     /* no assignments, no configs, no tags */
  at = put(put(at, 20000, 4), 0, 2);             /* timeout, validate only: no, no tags */
  check_topic_result(ask(link, at), "CreateTopics error");
}

static inline void delete_topic(struct link *link, const char *topic) {
  uint8_t *at = put_compact(put_uvarint(begin(link->out, DELETE_TOPICS, 6, 1), 2), topic);
  at = put(put(put(at, 0, 8), 0, 8), 0, 1);      /* by name: a zero id, no tags */
  at = put(put(at, 20000, 4), 0, 1);
  check_topic_result(ask(link, at), "DeleteTopics error");
}

/* False while the topic or the leader of one of its partitions is not known yet. */
static inline bool find_topic(struct link *link, const char *topic, uint8_t *topic_id) {
  uint8_t *at = put_uvarint(begin(link->out, METADATA, 12, 1), 2);
  at = put(put_compact(put(put(at, 0, 8), 0, 8), topic), 0, 1);
  at = put(at, 0, 3);                            /* no creation, no operations, no tags */
  struct reader in = ask(link, at);
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

static inline void wait_for_topic(struct link *link, const char *topic, uint8_t *topic_id) {
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (find_topic(link, topic, topic_id)) return;
    pause_ms(ATTEMPT_PAUSE_MS);
  }
  fail("topic has no leader", 0);
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
