package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** Hides secrets in log lines, of which there are none here. */
public class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    public Seq<?> redactParams(Seq<?> parameters) {
        return parameters;
    }
}
