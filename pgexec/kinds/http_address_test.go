package kinds

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressClass_OnlyPublicAddressesHaveNone(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		// Public.
		"1.1.1.1": "", "8.8.8.8": "", "11.0.0.1": "", "100.63.255.255": "", "100.128.0.0": "", "172.15.255.255": "",
		"172.32.0.0": "", "192.167.255.255": "", "192.169.0.0": "", "223.255.255.255": "", "198.17.255.255": "",
		"198.20.0.0": "", "168.63.129.15": "", "169.253.255.255": "", "2606:4700:4700::1111": "", "2a00:1450:4001::200e": "",
		"2001:4860:4860::8888": "", "2001:200::1": "", "2003::1": "", "64:ff9b::8.8.8.8": "", "2002:808:808::1": "",
		"::ffff:8.8.8.8": "", "::8.8.8.8": "", "::ffff:0:8.8.8.8": "",
		// RFC 1918 and unique local.
		"10.0.0.0": "private", "10.255.255.255": "private", "172.16.0.1": "private", "172.31.255.255": "private",
		"192.168.0.1": "private", "fc00::1": "private", "fd12:3456::1": "private", "fec0::1": "private",
		// Loopback and unspecified.
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		// Link-local and cloud metadata.
		"169.254.0.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local", "febf::1": "link-local",
		"169.254.169.254": "metadata", "168.63.129.16": "metadata", "100.100.100.200": "carrier-grade NAT",
		"fd00:ec2::254": "private", "fd20:ce::254": "private", "192.0.0.192": "reserved",
		// Carrier-grade NAT, multicast, broadcast, documentation, benchmarks, the rest.
		"100.64.0.1": "carrier-grade NAT", "100.127.255.255": "carrier-grade NAT", "224.0.0.1": "multicast",
		"239.255.255.255": "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved", "240.0.0.1": "reserved",
		"192.0.2.1": "reserved", "198.51.100.1": "reserved", "203.0.113.1": "reserved", "198.18.0.1": "reserved",
		"198.19.255.255": "reserved", "192.88.99.1": "reserved", "2001:db8::1": "reserved", "3fff::1": "reserved",
		"2001::1": "reserved", "2001:1ff::1": "reserved", "100::1": "reserved", "5f00::1": "reserved",
		"64:ff9b:1::1": "reserved", "4000::1": "reserved",
		// An IPv4 address in IPv6 clothes.
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:169.254.169.254": "metadata",
		"64:ff9b::10.0.0.1": "stands for 10.0.0.1, a private", "64:ff9b::7f00:1": "stands for 127.0.0.1, a loopback",
		"64:ff9b::a9fe:a9fe": "stands for 169.254.169.254, the cloud metadata", "2002:7f00:1::": "stands for 127.0.0.1",
		"2002:c0a8:101::1": "stands for 192.168.1.1, a private", "::127.0.0.1": "stands for 127.0.0.1",
		"::ffff:0:10.1.2.3": "stands for 10.1.2.3", "2002:a9fe:a9fe::": "metadata",
	} {
		got := addressClass(netip.MustParseAddr(addr))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("class of %s: got %q, want %q", addr, got, want)
		}
	}
}

func TestAllowList_AllowsWhatItNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		list, host, dialled string
		want                bool
	}{
		{"", "example.com", "93.184.216.34:443", true},
		{"", "localhost", "127.0.0.1:80", false},
		{"127.0.0.1", "localhost", "127.0.0.1:80", true},
		{"127.0.0.1", "localhost", "127.0.0.2:80", false},
		{"127.0.0.1", "localhost", "[::1]:80", false},
		{"127.0.0.0/8,::1", "localhost", "[::1]:80", true},
		{"127.0.0.0/8,::1", "x", "127.9.9.9:80", true},
		{"10.0.0.0/8", "x", "10.1.2.3:80", true},
		{"10.0.0.0/8", "x", "11.1.2.3:80", true},
		{"10.0.0.0/8", "x", "192.168.1.1:80", false},
		{"10.9.9.9/8", "x", "10.1.2.3:80", true},
		{"10.0.0.0/8", "x", "[::ffff:10.1.2.3]:80", true},
		{"::ffff:10.0.0.0/104", "x", "10.1.2.3:80", true},
		{"10.0.0.0/8", "x", "[64:ff9b::10.1.2.3]:80", false},
		{"64:ff9b::/96", "x", "[64:ff9b::10.1.2.3]:80", true},
		{"fe80::/10", "x", "[fe80::1%eth0]:80", true},
		{"fe80::1", "x", "[fe80::1%eth0]:80", true},
		{"localhost", "localhost", "127.0.0.1:80", true},
		{"localhost", "LocalHost.", "127.0.0.1:80", true},
		{"LOCALHOST.", "localhost", "127.0.0.1:80", true},
		{"localhost", "other", "127.0.0.1:80", false},
		{"localhost", "127.0.0.1", "127.0.0.1:80", false},
		{"localhost", "sub.localhost", "127.0.0.1:80", false},
		{"internal.example", "internal.example", "169.254.169.254:80", true},
		{"localhost:8080", "localhost", "127.0.0.1:8080", true},
		{"localhost:8080", "localhost", "127.0.0.1:8081", false},
		{"127.0.0.1:8080", "x", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", "x", "127.0.0.1:80", false},
		{"[::1]:8080", "x", "[::1]:8080", true},
		{"[::1]:8080", "x", "[::1]:80", false},
		{"[::1]", "x", "[::1]:80", true},
		{" 10.0.0.1 , ,192.168.0.0/16,", "x", "192.168.3.4:80", true},
	} {
		allow, err := parseAllow([]string{tc.list})
		if err != nil {
			t.Errorf("parse %q: %v", tc.list, err)
			continue
		}
		err = allow.check(tc.host, netip.MustParseAddrPort(tc.dialled))
		if (err == nil) != tc.want {
			t.Errorf("list %q, host %s, dialled %s: got %v, want allowed = %t", tc.list, tc.host, tc.dialled, err, tc.want)
		}
	}
}

func TestAllowList_BadEntryIsNamed(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{
		"*.example.com", "http://localhost", "10.0.0.0/33", "10.0.0", "256.1.1.1", "localhost:", "localhost:0", "localhost:99999",
		"local host", "bücher.example", "10.0.0.0/8:80", "[::1", "2130706433", ":80", "/8", "a/b",
	} {
		_, err := parseAllow([]string{"10.0.0.1", entry})
		if err == nil || !strings.Contains(err.Error(), `"`+entry+`"`) {
			t.Errorf("entry %q: got error %v", entry, err)
		}
	}
}

func TestRefusedError_SaysWhatAndWhichFlagAllowsIt(t *testing.T) {
	t.Parallel()
	var none allowList
	for _, tc := range []struct{ host, dialled, want string }{
		{"intra.example", "10.1.2.3:8080", "refused to connect to 10.1.2.3:8080 (intra.example): a private address; " +
			"a replica started with --http-allow 10.1.2.3 (or PGEXEC_HTTP_ALLOW=10.1.2.3) would allow it"},
		{"::1", "[::1]:80", "refused to connect to [::1]:80: a loopback address; " +
			"a replica started with --http-allow ::1 (or PGEXEC_HTTP_ALLOW=::1) would allow it"},
	} {
		err := none.check(tc.host, netip.MustParseAddrPort(tc.dialled))
		if err == nil || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"localhost", "10.0.0.0/8", "[::1]:80", "a:1,b", "::ffff:1.2.3.4/100", ":", "[]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		allow, err := parseAllow([]string{s})
		if err != nil {
			return
		}
		for _, e := range allow.entries {
			if e.host == "" && !e.prefix.IsValid() {
				t.Fatalf("entry of %q matches nothing: %+v", s, e)
			}
		}
	})
}
