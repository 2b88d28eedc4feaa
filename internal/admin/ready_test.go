package admin_test

import (
	"strings"
	"testing"

	"sluice/internal/admin"
)

func TestReadinessNamesWhatItWaitsFor(t *testing.T) {
	told := 0
	r := admin.NewReadiness(func() { told++ }, "identity", "configuration")
	r.Because("identity", "token rejected")
	if ok, why := r.Ready(); ok || why != "waiting for identity: token rejected\nwaiting for configuration\n" {
		t.Errorf("%v %q", ok, why)
	}
	r.Done("identity")
	r.Done("identity")
	r.Done("nobody")
	if ok, why := r.Ready(); ok || strings.Contains(why, "identity") {
		t.Errorf("%v %q", ok, why)
	}
	r.Done("configuration")
	if ok, why := r.Ready(); !ok || why != "" || told != 1 {
		t.Errorf("%v %q, told %d times", ok, why, told)
	}
	r.Because("configuration", "gone again")
	if ok, _ := r.Ready(); !ok {
		t.Error("ready doesn't stay ready")
	}
	r.Stop()
	if ok, why := r.Ready(); ok || !strings.Contains(why, "shutting down") {
		t.Errorf("after Stop: %v %q", ok, why)
	}
}

func TestReadinessWithoutConditionsIsReady(t *testing.T) {
	if ok, _ := admin.NewReadiness(nil).Ready(); !ok {
		t.Error("nothing is waited for, and yet not ready")
	}
}
