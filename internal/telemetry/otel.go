package telemetry

import (
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
)

// The fields of opentelemetry.proto.logs.v1 and common.v1 that are written.
const (
	requestResourceLogs = 1
	logsResource        = 1
	logsScope           = 2
	scopeRecords        = 2
	resourceAttributes  = 1

	recordTime       = 1
	recordBody       = 5
	recordAttributes = 6
	recordTrace      = 9
	recordSpan       = 10

	pairKey   = 1
	pairValue = 2

	anyString = 1
	anyArray  = 5
	anyPairs  = 6
	listItem  = 1 // of an array and of pairs
)

// OTel appends the record r as l wants it: one log_records field of a ScopeLogs.
// Every value is a string, as Envoy has it.
func (w *Formatter) OTel(dst []byte, l *config.OTelLog, r *Record) []byte {
	dst, record := begin(dst, scopeRecords)
	dst = protowire.AppendTag(dst, recordTime, protowire.Fixed64Type)
	dst = protowire.AppendFixed64(dst, uint64(r.Wall.UnixNano()))
	if l.Body != nil {
		var body int
		dst, body = begin(dst, recordBody)
		dst = end(w.otelValue(dst, l.Body, r), body)
	}
	dst = w.otelPairs(dst, recordAttributes, l.Attributes, r)
	for _, name := range l.FilterState {
		dst = w.otelState(dst, name, r)
	}
	dst = appendID(dst, recordTrace, r.TraceID)
	return end(appendID(dst, recordSpan, r.SpanID), record)
}

func (w *Formatter) otelPairs(dst []byte, field protowire.Number, j *config.JSONFormat, r *Record) []byte {
	if j == nil {
		return dst
	}
	for i, key := range j.Keys {
		var pair, value int
		dst, pair = begin(dst, field)
		dst = appendBytes(dst, pairKey, key)
		dst, value = begin(dst, pairValue)
		dst = end(end(w.otelValue(dst, &j.Values[i], r), value), pair)
	}
	return dst
}

// otelValue appends the content of an AnyValue.
func (w *Formatter) otelValue(dst []byte, v *config.JSONValue, r *Record) []byte {
	var at int
	switch {
	case v.Object != nil:
		dst, at = begin(dst, anyPairs)
		dst = w.otelPairs(dst, listItem, v.Object, r)
	case v.List != nil:
		dst, at = begin(dst, anyArray)
		for i := range v.List {
			var item int
			dst, item = begin(dst, listItem)
			dst = end(w.otelValue(dst, &v.List[i], r), item)
		}
	default:
		dst, at = begin(dst, anyString)
		dst = w.Text(dst, v.Format, r)
		makeUTF8(dst[at:])
	}
	return end(dst, at)
}

// otelState appends an attribute named as the object; one that isn't there leaves none.
func (w *Formatter) otelState(dst []byte, name string, r *Record) []byte {
	start := len(dst)
	dst, pair := begin(dst, recordAttributes)
	dst = appendBytes(dst, pairKey, name)
	dst, value := begin(dst, pairValue)
	dst, text := begin(dst, anyString)
	dst, k, _ := metadataOp(dst, &config.FormatItem{Op: "FILTER_STATE", Arg: name}, r)
	if k == missing {
		return dst[:start]
	}
	makeUTF8(dst[text:])
	return end(end(end(dst, text), value), pair)
}

// OTelResource encodes the resource that the records of l come from. A configured
// label stands in for the builtin one of its name.
func OTelResource(l *config.OTelLog, n *config.Node) []byte {
	labels := make([]config.OTelLabel, 0, len(l.Resource)+4)
	if !l.DisableBuiltin {
		for _, b := range [][2]string{{"log_name", l.LogName}, {"zone_name", n.Zone}, {"cluster_name", n.Cluster}, {"node_name", n.ID}} {
			if !labelled(l.Resource, b[0]) {
				labels = append(labels, config.OTelLabel{Key: b[0], Value: appendBytes(nil, anyString, b[1])})
			}
		}
	}
	var out []byte
	for _, a := range append(labels, l.Resource...) {
		var pair int
		out, pair = begin(out, resourceAttributes)
		out = appendBytes(out, pairKey, a.Key)
		out = end(appendBytes(out, pairValue, a.Value), pair)
	}
	return out
}

func labelled(list []config.OTelLabel, key string) bool {
	for i := range list {
		if list[i].Key == key {
			return true
		}
	}
	return false
}

// OTelRequest encodes an ExportLogsServiceRequest of records made by OTel; that of
// spans has the same fields.
func OTelRequest(resource, records []byte) []byte {
	out, logs := begin(nil, requestResourceLogs)
	out = appendBytes(out, logsResource, resource)
	return end(appendBytes(out, logsScope, records), logs)
}

// OTelRejected reads how many records an ExportLogsServiceResponse says were
// rejected: partial_success.rejected_log_records, both fields 1.
func OTelRejected(answer []byte) uint64 {
	partial, _ := protowire.ConsumeBytes(field1(answer, protowire.BytesType))
	n, _ := protowire.ConsumeVarint(field1(partial, protowire.VarintType))
	return n
}

// field1 gives the bytes from the value of the first field 1 of type t on, nil
// where there is none or the message breaks off before it.
func field1(m []byte, t protowire.Type) []byte {
	for len(m) > 0 {
		num, typ, n := protowire.ConsumeTag(m)
		if n < 0 {
			return nil
		}
		if m = m[n:]; num == 1 && typ == t {
			return m
		}
		if n = protowire.ConsumeFieldValue(num, typ, m); n < 0 {
			return nil
		}
		m = m[n:]
	}
	return nil
}

// appendID appends an identifier that is kept in hexadecimal digits.
func appendID(dst []byte, field protowire.Number, digits string) []byte {
	var id [16]byte
	if len(digits) == 0 || len(digits) > 2*len(id) {
		return dst
	}
	n, err := hex.Decode(id[:], []byte(digits))
	if err != nil {
		return dst
	}
	return appendBytes(dst, field, id[:n])
}
