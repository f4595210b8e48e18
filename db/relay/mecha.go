package relay

import (
	"strings"
	"time"
)

// An Address names a Mecha: `<name>^<crew>` (PROTOCOL §1). Addresses are
// compared exactly; the store refuses two that differ in letter case only.
type Address string

// A MechaNumber is the store's own number of a Mecha. It never leaves the relay.
type MechaNumber int64

// Mecha is a registered agent (PROTOCOL §1).
type Mecha struct {
	Number    MechaNumber
	Address   Address
	CreatedAt time.Time
}

// Name returns the part of the address before the ^.
func (a Address) Name() string { name, _, _ := strings.Cut(string(a), "^"); return name }

// Crew returns the part of the address after the ^.
func (a Address) Crew() string { _, crew, _ := strings.Cut(string(a), "^"); return crew }

// IsCrew reports whether the address names a whole crew, `*^<crew>` (PROTOCOL §3, To a
// crew). No Mecha has such an address.
func (a Address) IsCrew() bool { return strings.HasPrefix(string(a), "*^") }

const maxWord = 64 // characters of a name or a crew, which are all ASCII

// ParseAddress checks the form of an address (PROTOCOL §1): two words of 1–64
// characters with a ^ between them. The error is InvalidAddress.
func ParseAddress(s string) (Address, error) {
	name, crew, ok := strings.Cut(s, "^")
	if !ok {
		return "", Errorf(InvalidAddress,
			"%s is not a valid address: it must have the form <name>^<crew>, as in planner^acme", Quote(s))
	}
	if !isAddressWord(name) || !isAddressWord(crew) {
		return "", Errorf(InvalidAddress,
			"%s is not a valid address: name and crew must be 1–64 of A–Z a–z 0–9 . _ - and start with a letter or digit",
			Quote(s))
	}
	return Address(s), nil
}

// ParseRecipient is ParseAddress that also accepts the address of a whole crew, `*^<crew>`.
func ParseRecipient(s string) (Address, error) {
	if crew, ok := strings.CutPrefix(s, "*^"); ok && isAddressWord(crew) {
		return Address(s), nil
	}
	return ParseAddress(s)
}

func isAddressWord(s string) bool {
	return len(s) >= 1 && len(s) <= maxWord && isAlnum(s[0]) && only(s, "._-")
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// only reports whether every byte of s is an ASCII letter, a digit or a byte of extra.
func only(s, extra string) bool {
	for i := 0; i < len(s); i++ {
		if !isAlnum(s[i]) && strings.IndexByte(extra, s[i]) < 0 {
			return false
		}
	}
	return true
}

// Quote returns a client's text in quotation marks, for an error sentence. It cuts the
// text after 80 characters, and writes the rest as Visible does.
func Quote(s string) string {
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "…"
	}
	return "“" + Visible(s) + "”"
}
