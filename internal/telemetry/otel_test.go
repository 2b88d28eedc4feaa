package telemetry

import (
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
)

func leaf(op, arg string) config.JSONValue {
	return config.JSONValue{Format: &config.Format{Items: []config.FormatItem{{Op: op, Arg: arg}}}}
}

func otelLog() *config.OTelLog {
	body := leaf("REQ", ":method")
	return &config.OTelLog{LogName: "log", Body: &body, FilterState: []string{"here", "not-here"},
		Attributes: &config.JSONFormat{Keys: []string{"absent", "pairs", "list"}, Values: []config.JSONValue{leaf("REQ", "x-none"),
			{Object: &config.JSONFormat{Keys: []string{"code"}, Values: []config.JSONValue{leaf("RESPONSE_CODE", "")}}},
			{List: []config.JSONValue{leaf("PROTOCOL", ""), leaf("REQ", "x-bad")}}}},
		Resource: []config.OTelLabel{{Key: "zone_name", Value: appendBytes(nil, anyString, "mine")}}}
}

func otelRecord() *Record {
	r := record()
	r.Request.Add([]byte("x-bad"), []byte("a\xffb"))
	r.FilterState = map[string]string{"here": "value"}
	r.TraceID, r.SpanID = "0102030405060708090a0b0c0d0e0f10", "1112131415161718"
	return r
}

func stringValue(s string) *otlp.AnyValue {
	return &otlp.AnyValue{Value: &otlp.AnyValue_StringValue{StringValue: s}}
}

func TestOTelRecordIsWhatACollectorReads(t *testing.T) {
	l, w, r := otelLog(), NewFormatter(nil), otelRecord()
	records := w.OTel(w.OTel(nil, l, r), l, r)
	var got logs.LogsData // the fields of the request
	if err := proto.Unmarshal(OTelRequest(OTelResource(l, &config.Node{ID: "n", Cluster: "c", Zone: "z"}), records), &got); err != nil {
		t.Fatal(err)
	}
	of := got.GetResourceLogs()[0]
	labels := map[string]string{}
	for _, kv := range of.GetResource().GetAttributes() {
		labels[kv.Key] = kv.GetValue().GetStringValue()
	}
	if len(labels) != 4 || labels["log_name"] != "log" || labels["zone_name"] != "mine" || labels["cluster_name"] != "c" || labels["node_name"] != "n" {
		t.Errorf("labels %v", labels)
	}
	list := of.GetScopeLogs()[0].GetLogRecords()
	if len(list) != 2 {
		t.Fatalf("%d records", len(list))
	}
	one := list[1]
	if one.GetTimeUnixNano() != uint64(r.Wall.UnixNano()) || one.GetBody().GetStringValue() != "GET" || len(one.GetTraceId()) != 16 || len(one.GetSpanId()) != 8 {
		t.Errorf("record %v", one)
	}
	want := []*otlp.KeyValue{{Key: "absent", Value: stringValue("-")},
		{Key: "pairs", Value: &otlp.AnyValue{Value: &otlp.AnyValue_KvlistValue{KvlistValue: &otlp.KeyValueList{Values: []*otlp.KeyValue{{Key: "code", Value: stringValue("200")}}}}}},
		{Key: "list", Value: &otlp.AnyValue{Value: &otlp.AnyValue_ArrayValue{ArrayValue: &otlp.ArrayValue{Values: []*otlp.AnyValue{stringValue("HTTP/1.1"), stringValue("a!b")}}}}},
		{Key: "here", Value: stringValue("value")}}
	if len(one.Attributes) != len(want) {
		t.Fatalf("attributes %v", one.Attributes)
	}
	for i := range want {
		if !proto.Equal(one.Attributes[i], want[i]) {
			t.Errorf("attribute %v, want %v", one.Attributes[i], want[i])
		}
	}
}

func TestFilteredRecordsAreNotStreamedAndOthersDoNotAllocate(t *testing.T) {
	sent := 0
	files := NewFiles(1, 0, nil, nil)
	files.Stream = func(config.LogSink) Send { return func(int, []byte) { sent++ } }
	l, err := files.Compile([]*config.AccessLog{{Sink: otelLog()}, {Sink: otelLog(), Filter: &config.LogFilter{Kind: config.LogStatus, Op: config.CompareGE, Number: 400}}})
	if err != nil {
		t.Fatal(err)
	}
	w, r := Writer{Format: NewFormatter(nil)}, otelRecord()
	w.Emit(l, r)
	if sent != 1 {
		t.Errorf("%d records sent, want 1", sent)
	}
	if n := testing.AllocsPerRun(100, func() { w.Emit(l, r) }); n != 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func FuzzOTelRejected(f *testing.F) {
	f.Add([]byte{0x0a, 2, 8, 3})
	f.Add([]byte{0x12, 1, 'x', 0x0a, 0})
	f.Fuzz(func(_ *testing.T, b []byte) { OTelRejected(b) })
}

func TestRejectedRecordsAreRead(t *testing.T) {
	for answer, want := range map[string]uint64{"": 0, "\x0a\x00": 0, "\x0a\x02\x08\x03": 3, "\x12\x01x\x0a\x05\x12\x01x\x08\x07": 7, "\x0a\x7f\x08\x03": 0} {
		if got := OTelRejected([]byte(answer)); got != want {
			t.Errorf("%q: %d, want %d", answer, got, want)
		}
	}
}
