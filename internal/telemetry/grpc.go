package telemetry

import (
	"strconv"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

var grpcCamel = [...]string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
	"Unavailable", "DataLoss", "Unauthenticated"}

var grpcSnake = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
	"UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// GRPCStatus gives the gRPC status of a finished call: from the trailers, else
// the head, else by the HTTP code. ok is false when there is none; -1 is a
// value that is no number.
func (r *Record) GRPCStatus() (status int, ok bool) {
	for _, h := range [...]*httpmsg.Head{r.Trailers, r.Response} {
		if h != nil && h.Has(httpmsg.GRPCStatus) {
			n, err := strconv.ParseUint(string(h.Get(httpmsg.GRPCStatus)), 10, 32)
			if err != nil {
				return -1, true
			}
			return int(n), true
		}
	}
	if r.Code == 0 {
		return 0, false
	}
	return HTTPToGRPC(r.Code), true
}

// HTTPToGRPC maps an HTTP status to the gRPC status Envoy reports for it.
func HTTPToGRPC(code int) int {
	switch code {
	case 400:
		return 13
	case 401:
		return 16
	case 403:
		return 7
	case 404:
		return 12
	case 429, 502, 503, 504:
		return 14
	}
	return 2
}

func grpcOp(dst []byte, it *config.FormatItem, r *Record) ([]byte, kind) {
	if !r.GRPC {
		return dst, missing
	}
	n, ok := r.GRPCStatus()
	if !ok {
		return dst, missing
	}
	if it.Op == "GRPC_STATUS_NUMBER" || it.Arg == "NUMBER" {
		return strconv.AppendInt(dst, int64(n), 10), number
	}
	if n < 0 {
		return append(dst, "-1"...), text
	}
	if n >= len(grpcCamel) {
		return strconv.AppendInt(dst, int64(n), 10), text
	}
	if it.Arg == "SNAKE_STRING" {
		return append(dst, grpcSnake[n]...), text
	}
	return append(dst, grpcCamel[n]...), text
}
