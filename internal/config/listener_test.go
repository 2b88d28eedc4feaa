package config

import (
	"net/netip"
	"testing"
)

func TestAnAddressIsOneListeners(t *testing.T) {
	at := func(s string) Address { return Address{IP: netip.MustParseAddrPort(s)} }
	first := &Listener{Meta: Meta{Name: "first"}, Address: at("127.0.0.1:80"), Additional: []Address{at("127.0.0.1:81")}, BindToPort: true}
	for _, c := range []struct {
		rule string
		l    Listener
		ok   bool
	}{
		{"the same address", Listener{Address: at("127.0.0.1:80"), BindToPort: true}, false},
		{"an additional one", Listener{Address: at("127.0.0.1:81"), BindToPort: true}, false},
		{"as an additional one", Listener{Address: at("127.0.0.1:82"), Additional: []Address{at("127.0.0.1:80")}, BindToPort: true}, false},
		{"without a socket", Listener{Address: at("127.0.0.1:80")}, true},
		{"another port", Listener{Address: at("127.0.0.1:83"), BindToPort: true}, true},
	} {
		taken := Addresses{}
		if err := taken.Claim(first); err != nil {
			t.Fatal(err)
		}
		if err := taken.Claim(&c.l); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.rule, err)
		}
	}
	taken := Addresses{}
	for range 2 {
		if err := taken.Claim(&Listener{Address: at("127.0.0.1:0"), BindToPort: true}); err != nil {
			t.Errorf("ports that the kernel chooses: %v", err)
		}
	}
}
