#include "validation/gradients.h"

enum status check_gradients(const struct check_options *o, struct report *r, struct host *job)
{
    TRY(gradients_differences(o, r, job));
    TRY(gradients_stored(o, r, job));
    return gradients_logits(o, r, job);
}
