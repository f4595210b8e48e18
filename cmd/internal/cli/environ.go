package cli

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// FromEnvironment sets every flag that was not typed from RELAY_<FLAG>.
func FromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := Variable(f)
		value, set := os.LookupEnv(name)
		if err != nil || f.Changed || !set || f.Name == "help" {
			return
		}
		var invalid *pflag.InvalidValueError
		if e := flags.Set(f.Name, value); errors.As(e, &invalid) {
			err = invalidValue(name, invalid)
		} else if e != nil {
			err = Usagef("%s: %v", name, e)
		}
	})
	return err
}

// Variable is the environment variable that sets a flag.
func Variable(f *pflag.Flag) string {
	return "RELAY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
