package file_test

import _ "relay/db/file/check" // file.Check of these tests knows all rules
