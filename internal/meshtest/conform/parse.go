package conform

import (
	"encoding/base64"
	"encoding/hex"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// parsedBody is a request body as `parse` wants it: text, json, or the fields of
// a protobuf message by its full name; gRPC bodies lose their frame. A body of
// another kind is told as it is.
func parsedBody(data []byte, how string, grpc bool) any {
	if how == "" || len(data) == 0 {
		return text(data)
	}
	if how == "json" {
		if v, err := parseJSON(data); err == nil {
			return v
		}
		return text(data)
	}
	if grpc && len(data) >= 5 {
		data = data[5:]
	}
	m, err := newMessage(how)
	if err != nil || proto.Unmarshal(data, m) != nil {
		return text(data)
	}
	js, err := protojson.Marshal(m)
	if err != nil {
		return text(data)
	}
	v, err := parseJSON(js)
	if err != nil {
		return text(data)
	}
	return readable(v)
}

// olderNames are fields whose names in records are those of older protobuf files.
var olderNames = map[string]string{"scopeLogs": "instrumentationLibraryLogs", "logRecords": "logs", "scopeSpans": "instrumentationLibrarySpans", "scope": "instrumentationLibrary"}

// readable has trace and span ids in hex, and lists of key and value as maps:
// their order means nothing.
func readable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for now, older := range olderNames {
			if inner, ok := v[now]; ok {
				delete(v, now)
				v[older] = inner
			}
		}
		for k, inner := range v {
			if s, ok := inner.(string); ok && (k == "traceId" || k == "spanId" || k == "parentSpanId") {
				if id, err := base64.StdEncoding.DecodeString(s); err == nil {
					v[k] = hex.EncodeToString(id)
					continue
				}
			}
			v[k] = readable(inner)
		}
	case []any:
		byKey := object{}
		for i, inner := range v {
			m, ok := inner.(map[string]any)
			if key, text := m["key"].(string); ok && text && len(m) == 2 && m["value"] != nil {
				byKey[key] = readable(m["value"])
			}
			v[i] = readable(inner)
		}
		if len(v) > 0 && len(byKey) == len(v) {
			return byKey
		}
	}
	return v
}
