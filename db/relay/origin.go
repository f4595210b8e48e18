package relay

import (
	"slices"
	"strings"
)

// AllowsOrigin reports whether a list of the setting --allow-origin has the origin of a
// page in a browser (RFC 6454). "*" in the list stands for all.
func AllowsOrigin(list []string, origin string) bool {
	return slices.ContainsFunc(list, func(allowed string) bool {
		return allowed == "*" || strings.EqualFold(allowed, origin)
	})
}
