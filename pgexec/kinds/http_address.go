package kinds

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// allowList names the non-public destinations that http nodes may reach.
// Public addresses need no entry.
type allowList struct {
	entries []allowEntry
}

// allowEntry is one of HOST, HOST:PORT, IP, IP:PORT and CIDR.
type allowEntry struct {
	// host is compared with the host of the URL, whatever it resolves to.
	host string
	// prefix is compared with the address dialled, when host is empty.
	prefix netip.Prefix
	// port is 0 for any.
	port uint16
}

// parseAllow reads entries, each of which may hold several separated by commas.
func parseAllow(list []string) (allowList, error) {
	var a allowList
	for _, item := range list {
		for text := range strings.SplitSeq(item, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			e, err := parseAllowEntry(text)
			if err != nil {
				return allowList{}, err
			}
			a.entries = append(a.entries, e)
		}
	}
	return a, nil
}

func parseAllowEntry(text string) (allowEntry, error) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return allowEntry{prefix: unmapPrefix(prefix)}, nil
	}
	if addr, ok := parseAddr(text); ok {
		return allowEntry{prefix: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	host, port := text, uint16(0)
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		n, err := strconv.ParseUint(text[i+1:], 10, 16)
		if err != nil || n == 0 {
			return allowEntry{}, allowFault(text, "the port is not a number from 1 to 65535")
		}
		host, port = text[:i], uint16(n)
	}
	if addr, ok := parseAddr(host); ok {
		return allowEntry{prefix: netip.PrefixFrom(addr, addr.BitLen()), port: port}, nil
	}
	if !isHostName(host) {
		return allowEntry{}, allowFault(text, "")
	}
	return allowEntry{host: normalHost(host), port: port}, nil
}

func allowFault(text, fault string) error {
	if fault == "" {
		fault = "not a host name (international ones in their xn-- form, no wildcards), IP address or CIDR"
	}
	return fmt.Errorf("parse http allow entry %q: %s", text, fault)
}

// parseAddr reads an address, in brackets or not, without its zone.
func parseAddr(text string) (netip.Addr, bool) {
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = text[1 : len(text)-1]
	}
	addr, err := netip.ParseAddr(text)
	return addr.WithZone("").Unmap(), err == nil
}

// unmapPrefix makes ::ffff:10.0.0.0/104 the 10.0.0.0/8 it stands for.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

// isHostName accepts names that are not numbers, which some resolvers take for addresses.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 || strings.Trim(s, "0123456789.") == "" {
		return false
	}
	for _, r := range s {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && !('0' <= r && r <= '9') && r != '-' && r != '.' && r != '_' {
			return false
		}
	}
	return true
}

func normalHost(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// allows reports whether an entry names the host of the URL or the address dialled.
func (a allowList) allows(host string, to netip.AddrPort) bool {
	host = normalHost(host)
	addr := to.Addr().WithZone("").Unmap()
	return slices.ContainsFunc(a.entries, func(e allowEntry) bool {
		if e.port != 0 && e.port != to.Port() {
			return false
		}
		if e.host != "" {
			return e.host == host
		}
		return e.prefix.Contains(addr)
	})
}

// check returns a *refusedError if to may not be dialled for a URL with that host.
func (a allowList) check(host string, to netip.AddrPort) error {
	class := addressClass(to.Addr())
	if class == "" || a.allows(host, to) {
		return nil
	}
	return &refusedError{host: host, to: to, class: class}
}

// refusedError is a destination that is not public and not allowed.
type refusedError struct {
	host  string
	to    netip.AddrPort
	class string
}

func (e *refusedError) Error() string {
	addr := e.to.Addr().WithZone("").Unmap()
	of := ""
	if _, literal := parseAddr(e.host); !literal {
		of = " (" + e.host + ")"
	}
	return fmt.Sprintf("refused to connect to %s%s: %s; a replica started with --http-allow %s (or PGEXEC_HTTP_ALLOW=%s) would allow it",
		netip.AddrPortFrom(addr, e.to.Port()), of, e.class, addr, addr)
}

func (e *refusedError) Is(target error) bool { return target == ErrAddressRefused }

// specialRange is a range of addresses that are not of the public internet.
type specialRange struct {
	prefix netip.Prefix
	class  string
}

// Ranges from the IANA special-purpose registries. The first that contains an
// address counts.
var (
	special4 = ranges(
		"0.0.0.0/8", "an unspecified address",
		"10.0.0.0/8", "a private address",
		"100.64.0.0/10", "a carrier-grade NAT address",
		"127.0.0.0/8", "a loopback address",
		"169.254.169.254/32", "the cloud metadata service",
		"169.254.0.0/16", "a link-local address",
		// Azure's host agent, which answers only inside a virtual machine.
		"168.63.129.16/32", "the cloud metadata service",
		"172.16.0.0/12", "a private address",
		"192.0.0.0/24", "a reserved address",
		"192.0.2.0/24", "a reserved address",
		"192.88.99.0/24", "a reserved address",
		"192.168.0.0/16", "a private address",
		"198.18.0.0/15", "a reserved address",
		"198.51.100.0/24", "a reserved address",
		"203.0.113.0/24", "a reserved address",
		"224.0.0.0/4", "a multicast address",
		"240.0.0.0/4", "a reserved address",
	)
	special6 = ranges(
		"::/128", "an unspecified address",
		"::1/128", "a loopback address",
		"fc00::/7", "a private address",
		"fe80::/10", "a link-local address",
		"fec0::/10", "a private address",
		"ff00::/8", "a multicast address",
		"2001::/23", "a reserved address",
		"2001:db8::/32", "a reserved address",
		"3fff::/20", "a reserved address",
	)
	globalUnicast = netip.MustParsePrefix("2000::/3")
)

func ranges(pairs ...string) []specialRange {
	var list []specialRange
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, specialRange{netip.MustParsePrefix(pair[0]), pair[1]})
	}
	return list
}

// embeddings are IPv6 ranges whose addresses lead to an IPv4 address: at is
// where its four bytes stand.
var embeddings = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated
}

// addressClass says why an address is not public, "" if it is.
func addressClass(addr netip.Addr) string {
	addr = addr.WithZone("").Unmap()
	if addr.Is4() {
		return classIn(special4, addr)
	}
	if class := classIn(special6, addr); class != "" {
		return class
	}
	for _, e := range embeddings {
		if !e.prefix.Contains(addr) {
			continue
		}
		bytes := addr.As16()
		inner := netip.AddrFrom4([4]byte(bytes[e.at : e.at+4]))
		if class := addressClass(inner); class != "" {
			return fmt.Sprintf("it stands for %s, %s", inner, class)
		}
		return ""
	}
	if !globalUnicast.Contains(addr) {
		return "a reserved address"
	}
	return ""
}

func classIn(list []specialRange, addr netip.Addr) string {
	for _, r := range list {
		if r.prefix.Contains(addr) {
			return r.class
		}
	}
	return ""
}
